// Verifies the vectors of GitHub and Shopify with the libraries that these publish.
import { readFile } from "node:fs/promises";
import "@shopify/shopify-api/adapters/node";
import { shopifyApi } from "@shopify/shopify-api";
import { verify } from "@octokit/webhooks-methods";

const vectors = JSON.parse(await readFile(process.argv[2], "utf8"));
const of = (provider) => vectors.filter((vector) => vector.provider === provider);
const fail = (vector, why) => {
  throw new Error(`${vector.name}: ${why}`);
};

for (const vector of of("github")) {
  const good = await verify(vector.secret, vector.body, vector.headers["X-Hub-Signature-256"]);
  if (!good) fail(vector, "octokit does not take it");
}
for (const vector of of("shopify")) {
  const library = shopifyApi({
    apiKey: "key", apiSecretKey: vector.secret, hostName: "example.com", apiVersion: "2026-07", isEmbeddedApp: false,
    logger: { log: () => {} },
  });
  const rawRequest = { method: "POST", url: "/", headers: vector.headers };
  const result = await library.webhooks.validate({ rawBody: vector.body, rawRequest });
  if (!result.valid) fail(vector, `Shopify's library does not take it: ${JSON.stringify(result)}`);
}
console.log(`${of("github").length + of("shopify").length} vectors verify with octokit and Shopify's library`);

// The real program, with a store of its own, and a shop's endpoint that fails until it is mended.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const PROGRAM = resolve(dirname(fileURLToPath(import.meta.url)), "../debug/hikyaku");
export const TOKEN = "a-token-for-the-tests-of-the-console";
const SECRET = "a-secret-for-the-tests-of-the-console";

/** An endpoint whose answer can be chosen. */
export async function endpoint() {
  const state = { status: 500, got: [] };
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      state.got.push(request.headers["x-rr-delivery"]);
      response.writeHead(state.status, { "content-type": "text/plain" }).end(state.status < 300 ? "thanks" : "<b>no room</b> on this device");
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { ...state, state, url: `http://127.0.0.1:${server.address().port}/hook`, close: () => server.close() };
}

/** A directory that is gone afterwards. */
export function directory() {
  const path = mkdtempSync(join(tmpdir(), "hikyaku-console-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** `hikyaku sandbox`: the provider whose list is compared. It sells many things and sends nothing, so all that it lists is missing. */
export async function sandbox() {
  const child = spawn(PROGRAM, ["sandbox", "--listen", "127.0.0.1:0", "--orders-per-hour", "0", "--sales-per-hour", "7200"]);
  const url = await new Promise((done, fail) => {
    let said = "";
    child.stderr.on("data", (chunk) => {
      said += chunk;
      const found = said.match(/(http:\/\/\S+)\s/);
      if (found) done(found[1]);
    });
    child.on("exit", (code) => fail(new Error(`the sandbox ended with ${code}:\n${said}`)));
  });
  const settings = `
[[reconcile]]
name = "sales"
source = "receiptroller"
adapter = "receiptroller-transactions"
url = "${url}"
provider_organization = "org-sandbox"
login = "${url}/account/login"
user = "sandbox"
password = "sandbox"
every = "1h"
`;
  return {
    settings,
    /** Answers nothing until it goes on. */
    pause: () => child.kill("SIGSTOP"),
    goOn: () => child.kill("SIGCONT"),
    stop: () => { child.removeAllListeners("exit"); child.kill("SIGKILL"); },
  };
}

/** Starts the program in a directory; `events` are those that its route takes, `more` further settings. */
export async function start(path, events, port = 0, more = "") {
  writeFileSync(join(path, "hikyaku.toml"), `
listen = "127.0.0.1:${port}"
store = "sqlite:${path}/hikyaku.db"
[api]
token = "${TOKEN}"
[sender]
retry_delays = ["100ms", "200ms", "300ms"]
[sender.targets]
allow = ["127.0.0.0/8"]
allow_http = true
[[source]]
name = "receiptroller"
provider = "receiptroller"
secrets = ["${SECRET}"]
[[destination]]
name = "books"
kind = "sql"
url = "sqlite:${path}/books.db"
table = "sales"
key = "id"
create = true
columns = { id = "/data/id", total = "/data/total" }
[[route]]
source = "receiptroller"
events = ${JSON.stringify(events)}
destination = "books"
${more}`);
  const child = spawn(PROGRAM, ["serve", "--config", join(path, "hikyaku.toml")], { cwd: path });
  let log = "";
  const address = await new Promise((done, fail) => {
    const read = (chunk) => {
      log += chunk;
      const found = log.match(/"addr":"([^"]+)"/);
      if (found) done(found[1]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", (code) => fail(new Error(`the program ended with ${code}:\n${log}`)));
  });
  const stop = () => new Promise((done) => { child.removeAllListeners("exit"); child.on("exit", done); child.kill("SIGTERM"); });
  return { base: `http://${address}`, port: Number(address.split(":").pop()), stop, log: () => log };
}

/** Calls the API with the token. */
export async function call(base, method, path, body) {
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const answer = await fetch(`${base}/v1/organizations/default/${path}`, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.status === 204 ? null : answer.json();
}

/** Delivers to the inbox as the provider does. */
export async function deliver(base, event) {
  const body = JSON.stringify(event);
  const signature = createHmac("sha256", SECRET).update(body).digest("hex");
  const headers = { "x-rr-delivery": event.id, "x-rr-signature": `sha256=${signature}` };
  const answer = await fetch(`${base}/in/receiptroller`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`the inbox answers ${answer.status}`);
}

/** Looks until something is so; what never is ends with the browser's patience. */
export async function until(what, look) {
  for (let looks = 0; looks < 600; looks += 1) {
    if (await look()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`it never came: ${what}`);
}

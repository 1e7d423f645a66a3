// From the first start with nothing to a sale that is found again, as a person would go, in a real browser.
//
// Every page is checked by axe (WCAG 2.2 AA) in English and light and in Japanese and dark, and no page may ask another
// host or say anything on the browser's console.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { TOKEN, call, deliver, directory, endpoint, sandbox, start, until } from "./program.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SHOTS = join(HERE, "screenshots");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>";
const WIDE = { width: 1280, height: 900 };
/** Those of which a small picture is made for the documentation, with `--docs`. */
const FOR_DOCS = process.argv.includes("--docs") ? ["overview-en", "overview-ja", "webhook-off-en", "event-en", "row-ja"] : [];
const DOCS = join(HERE, "../../docs/console");
const SMALL = { width: 960, height: 720 };
const PHONE = { width: 390, height: 844 };

mkdirSync(SHOTS, { recursive: true });
if (FOR_DOCS.length > 0) mkdirSync(DOCS, { recursive: true });
const complaints = [];
const pictured = new Set();

/** A visitor with a language and a colour scheme. */
async function visit(browser, base, locale, colorScheme, viewport = WIDE) {
  const context = await browser.newContext({ locale, colorScheme, viewport, reducedMotion: "reduce", timezoneId: "Asia/Tokyo", baseURL: base });
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  page.on("console", (message) => { if (message.type() !== "log" && !page.url().endsWith("/nothing-here")) complaints.push(`${page.url()}: ${message.text()}`); });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  page.on("dialog", (dialog) => { complaints.push(`${page.url()}: a dialog says ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) complaints.push(`it asks for ${request.url()}`); });
  return page;
}

/** Checks the page as it is, and takes its picture. */
async function look(page, name, inBothSchemes = false) {
  const scheme = await page.evaluate(() => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  const language = await page.evaluate(() => document.documentElement.lang);
  const shoot = (colours) => page.screenshot({ path: join(SHOTS, `${name}-${language}-${colours}-${page.viewportSize().width}.png`), fullPage: true });
  await shoot(scheme);
  if (inBothSchemes) {
    const other = scheme === "dark" ? "light" : "dark";
    await page.emulateMedia({ colorScheme: other });
    await shoot(other);
    await page.emulateMedia({ colorScheme: scheme });
  }
  const small = join(DOCS, `${name}-${language}.jpg`);
  if (FOR_DOCS.includes(`${name}-${language}`) && page.viewportSize().width === WIDE.width && !pictured.has(small)) {
    pictured.add(small);
    await page.setViewportSize(SMALL);
    await page.screenshot({ path: small, type: "jpeg", quality: 60 });
    await page.setViewportSize(WIDE);
  }
  await narrow(page, name);
  // On a phone it is the same page, only narrower.
  if (page.viewportSize().width === PHONE.width) return;
  // The browser's own world: the page's policy lets no script of ours into the page's.
  const found = await page.evaluate(`${AXE}; axe.run(document, { runOnly: ${JSON.stringify(RULES)}, resultTypes: ["violations"] })`);
  for (const { id, nodes, help } of found.violations) complaints.push(`${name} (${language}, ${scheme}): ${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 150)).join(" | ")}`);
}

/** No page is to be pushed sideways, and how things stand is seen without pushing a table. */
async function narrow(page, name) {
  const badge = page.locator("table .badge").first();
  const box = (await badge.count()) > 0 ? await badge.boundingBox() : null;
  if (box && box.x + box.width > page.viewportSize().width) complaints.push(`${name}: the state is out of sight`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 1) complaints.push(`${name}: it is ${wide} pixels wider than the window`);
}

async function signIn(page) {
  await page.goto("/console");
  await page.locator("#token").fill(TOKEN);
  await page.locator("main form button").click();
  await page.waitForURL("**/console/o/default");
}

async function firstStart(page) {
  await page.goto("/console");
  await look(page, "sign-in");
  await page.locator("#token").fill("not the token");
  await page.locator("main form button").click();
  await page.getByRole("alert").waitFor();
  await signIn(page);
  const text = await page.locator("main").innerText();
  assert.match(text, /Three steps/);
  const address = new URL(page.url()).origin;
  assert.ok(text.includes(`curl -s ${address}/v1/organizations/default/webhooks`), "the command has the real address");
  await look(page, "first");
  // The language is switched in the header and stays.
  await page.getByRole("button", { name: "日本語" }).click();
  await page.getByRole("heading", { name: "はじめに" }).waitFor();
  await page.goto("/console/o/default/webhooks");
  assert.equal(await page.evaluate(() => document.documentElement.lang), "ja");
  await page.getByRole("button", { name: "English" }).click();
  await page.getByRole("heading", { name: "Register a webhook" }).waitFor();
}

async function prepare(base, shop) {
  const webhook = await call(base, "POST", "webhooks", { url: shop.url, events: ["sale.*"], description: "the shop" });
  await call(base, "POST", "webhooks", { url: "http://127.0.0.1:9/stock", events: ["stock.*"], active: false });
  const sale = (id, total, more = {}) => ({ id, type: "sale.created", data: { id: `T01|${id}`, total, ...more } });
  await call(base, "POST", "events", sale("sale-1", 1280));
  await until("the webhook is off", async () => !(await call(base, "GET", `webhooks/${webhook.id}`)).active);
  await call(base, "POST", "events", sale("sale-2", 350));
  await call(base, "POST", "events", sale("sale-markup", 1, { note: MARKUP }));
  await deliver(base, { ...sale("in-1", 1280), timestamp: "2026-11-30T09:00:00.000Z" });
  await deliver(base, { id: "in-2", type: "sale.updated", timestamp: "2026-11-30T10:00:00.000Z", data: { id: "T01|in-1", total: 1300 } });
  await deliver(base, { id: "in-3", type: "refund.made", timestamp: "2026-11-30T11:00:00.000Z", data: { id: "T01|in-9", note: MARKUP } });
  await until("effects are done", async () => (await call(base, "GET", "inbox?state=waiting")).items.length === 0);
  return webhook;
}

/** From "a sale is missing" to its effect in the destination: every click is counted. */
async function missingSale(page) {
  let clicks = 0;
  const click = async (locator) => { clicks += 1; await locator.click(); };
  await page.goto("/console/o/default");
  await page.locator("#find").fill("T01|in-1");
  await click(page.getByRole("button", { name: "Search" }));
  await click(page.getByRole("link", { name: "in-1", exact: true }));
  await page.getByText("It took effect.").waitFor();
  await page.getByText("receiptroller-books").first().waitFor();
  assert.ok(clicks < 10, `${clicks} clicks`);
  await look(page, "row");
  // What never came leads on.
  await page.goto("/console/o/default/deliveries");
  await page.locator("#find").fill("売上 1001");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByRole("link", { name: "Compare with the provider's own list" }).waitFor();
  await look(page, "nothing-found");
}

async function mendWebhook(page, shop) {
  await page.goto("/console/o/default");
  await look(page, "overview");
  await page.getByRole("link", { name: /switched off after failures/ }).click();
  await page.getByRole("heading", { name: "What to do" }).waitFor();
  await look(page, "webhook-off");
  await page.getByRole("link", { name: "sale-1" }).first().click();
  await page.getByText("It did not arrive: all 4 attempts failed (500, 500, 500, 500)").waitFor();
  await page.getByText("<b>no room</b> on this device").last().waitFor();
  await look(page, "event");
  await page.goBack();
  await page.getByRole("button", { name: "Send a test" }).first().click();
  await page.getByRole("heading", { name: "The endpoint did not accept the test." }).waitFor();
  await look(page, "trial");
  shop.state.status = 200;
  await page.getByRole("button", { name: "Send a test" }).first().click();
  await page.getByRole("heading", { name: "The endpoint accepted the test." }).waitFor();
  await page.getByRole("button", { name: "Switch on" }).click();
  await page.getByRole("button", { name: "Send 3 events now" }).click();
  await page.getByText("3 of 3 events made due").waitFor();
  await look(page, "recovery");
  await until("the missed events arrive", () => ["sale-1", "sale-2", "sale-markup"].every((id) => shop.state.got.filter((got) => got === id).length > 0));
}

async function markupIsText(page) {
  for (const path of ["events/sale-markup", "inbox/receiptroller/in-3"]) {
    await page.goto(`/console/o/default/${path}`);
    await page.locator(".tree").getByText("<script>alert(2)</script>").first().waitFor();
    assert.equal(await page.locator("main img, main script").count(), 0, path);
  }
}

async function releaseParked(page) {
  await page.goto("/console/o/default/inbox?state=parked");
  await look(page, "inbox");
  await page.getByRole("link", { name: "in-3" }).click();
  await page.getByRole("button", { name: "Release it" }).click();
  // Chromium refuses to load a page again that is just being replaced by the answer's; the next look does it.
  const again = () => page.reload().catch((error) => { if (!/Not attached to an active page/.test(error.message)) throw error; });
  await until("the row takes effect", async () => { await again(); return page.getByText("It took effect.").isVisible(); });
}

/** A provider that sells and sends nothing: comparing with its list finds what is missing, and brings it. */
async function compare(page, base, provider) {
  const stands = async () => (await call(base, "GET", "reconcile")).items[0];
  await until("the first comparison has ended", async () => (await stands()).cycle?.endedAt).catch(async (error) => { throw new Error(JSON.stringify(await stands()), { cause: error }); });
  const { number } = (await stands()).cycle;
  await page.setViewportSize(WIDE);
  await page.goto("/console/o/default/reconcile");
  // As long as the provider does not answer it is under way; then it shows what it found, without anybody loading the page again.
  provider.pause();
  await page.getByRole("button", { name: "Compare now" }).click();
  await page.locator("progress").waitFor();
  await look(page, "comparing");
  provider.goOn();
  await page.locator("progress").waitFor({ state: "detached" });
  await page.locator("table tbody th", { hasText: String(number + 1) }).first().waitFor();
  await until("the comparison has ended", async () => (await stands()).cycle.number > number && (await stands()).cycle.endedAt);
  const cycles = (await call(base, "GET", "reconcile/sales/cycles")).items;
  const missing = cycles.reduce((sum, cycle) => sum + cycle.missing, 0);
  assert.ok(missing > 0, "the sandbox has sold something");
  await page.goto("/console/o/default/reconcile");
  await page.locator("ol.calendar li.repaired").last().getByText(/^\d+\/\d+$/).waitFor();
  await look(page, "compared", true);
  const rows = (await call(base, "GET", "inbox?source=receiptroller&limit=1")).items;
  await page.goto(`/console/o/default/deliveries?find=${encodeURIComponent(rows[0].key)}`);
  await page.getByRole("link", { name: rows[0].deliveryId, exact: true }).click();
  await page.getByText("It took effect.").waitFor();
}

/** Many parked rows are released at once, in view of how far it has come. */
async function releaseMany(page, base) {
  for (let n = 0; n < 3; n += 1) await deliver(base, { id: `void-${n}`, type: "void.made", timestamp: "2026-11-30T12:00:00.000Z", data: { id: `T01|void-${n}` } });
  await page.goto("/console/o/default/inbox?state=parked");
  await page.getByRole("button", { name: "Release all of these…" }).click();
  await page.getByRole("heading", { name: "Release 3 rows?" }).waitFor();
  await look(page, "many");
  await page.getByRole("button", { name: "Release them" }).click();
  await page.getByRole("heading", { name: "0 rows released" }).waitFor();
  await page.getByText("(3 rows)").waitFor();
  await look(page, "many-done");
}

/** What is left of the pages, and all of them for somebody else's eyes. */
async function everyPage(page, webhook) {
  const pages = {
    overview: "", webhooks: "/webhooks", webhook: `/webhooks/${webhook.id}`, secret: `/webhooks/${webhook.id}/secret`, search: "/deliveries?find=sale-1",
    event: "/events/sale-1", inbox: "/inbox", row: "/inbox/receiptroller/in-2", reconcile: "/reconcile", tail: "/tail", nothing: "/nothing-here",
  };
  for (const [name, path] of Object.entries(pages)) {
    await page.goto(`/console/o/default${path}`);
    await look(page, name, page.viewportSize().width === WIDE.width);
  }
}

/** A tail that goes on by itself. */
async function liveTail(page, base) {
  await page.goto("/console/o/default/tail");
  await page.locator("#tail-state").getByText("live").waitFor();
  await call(base, "POST", "events", { id: "sale-live", type: "sale.created", data: {} });
  await page.locator("#tail").getByRole("link", { name: "sale-live" }).first().waitFor();
  await page.locator("#tail-filter").fill("no such thing");
  assert.equal(await page.locator("#tail tr:visible").count(), 0);
}

async function rotate(page, webhook) {
  await page.goto(`/console/o/default/webhooks/${webhook.id}/secret`);
  await page.getByRole("button", { name: "Make the new secret" }).click();
  await page.getByText("whsec_").first().waitFor();
  await look(page, "rotated");
}

/** Without a script everything can still be read, and the forms work. */
async function withoutScript(browser, base) {
  const context = await browser.newContext({ javaScriptEnabled: false, locale: "en", baseURL: base });
  const page = await context.newPage();
  await signIn(page);
  await page.locator("time", { hasText: "UTC" }).first().waitFor({ state: "attached" });
  await page.getByRole("link", { name: "Search" }).first().click();
  await page.getByRole("heading", { name: "Search" }).waitFor();
  await page.getByRole("link", { name: "Live" }).first().click();
  await page.getByRole("link", { name: "Load again" }).waitFor();
  await page.screenshot({ path: join(SHOTS, "tail-without-script.png") });
}

/** Everything that a page loads, as it goes over the wire. */
async function weight(browser, base) {
  const page = await visit(browser, base, "en", "light");
  let bytes = 0;
  page.on("response", async (response) => { if (response.url().includes("sign-in")) return; const sizes = await response.request().sizes(); bytes += sizes.responseBodySize + sizes.responseHeadersSize; });
  await signIn(page);
  await page.waitForLoadState("networkidle");
  assert.ok(bytes > 50_000 && bytes < 100 * 1024, `a page loads ${bytes} bytes`);
  console.log(`a page, with all that it loads, is ${bytes} bytes over the wire`);
}

const place = directory();
const shop = await endpoint();
const provider = await sandbox();
let program = await start(place.path, ["sale.*"]);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const page = await visit(browser, program.base, "en-GB", "light");
  await firstStart(page);
  const webhook = await prepare(program.base, shop);
  await mendWebhook(page, shop);
  await missingSale(page);
  await markupIsText(page);
  // Somebody adds the route that a parked row lacks.
  await program.stop();
  program = await start(place.path, ["sale.*", "refund.*"], program.port);
  await releaseParked(page);
  await releaseMany(page, program.base);
  await liveTail(page, program.base);
  await rotate(page, webhook);
  await everyPage(page, webhook);
  await page.setViewportSize(PHONE);
  await everyPage(page, webhook);
  const other = await visit(browser, program.base, "ja-JP", "dark");
  await signIn(other);
  await everyPage(other, webhook);
  await withoutScript(browser, program.base);
  // The same program, now with a provider to compare with.
  await program.stop();
  program = await start(place.path, ["sale.*", "refund.*"], program.port, provider.settings);
  await compare(page, program.base, provider);
  await other.goto("/console/o/default/reconcile");
  await look(other, "compared");
  await weight(browser, program.base);
} finally {
  complaints.forEach((complaint) => console.error(complaint));
  await browser.close();
  await program.stop();
  shop.close();
  provider.stop();
  place.remove();
}
assert.equal(complaints.length, 0, `${complaints.length} complaints`);
console.log(`the console was walked through; its pictures are in ${SHOTS}`);

#!/usr/bin/env python3
"""How long the console's pages take over a large store. By hand; no part of ./test.

    tests/console/large.py fill FILE [ROWS]     fills a store that was made by one start of the program, and is not in use
    tests/console/large.py time URL [TIMES]     times every page of the program that serves it

Rows go straight into the tables: ROWS events (10,000,000 unless said otherwise) with a delivery and an attempt each, of which some
failed and some wait, and ROWS received rows with their effects. It takes minutes, and ten gigabytes for ten million.
"""

import sqlite3
import subprocess
import sys
import time

TABLES = ("events", "waiting", "deliveries", "attempts", "undelivered", "inbox_rows", "work", "lanes", "effects")
HISTORY_MS = 20 * 86_400_000
HOOK = "CASE WHEN i < 100 THEN 'w19' ELSE printf('w%02d', i % 18 + 1) END"
# In no order, as the ids of providers are.
ID = "printf('%08x', (i * 2654435761) & 4294967295)"
ROUTE = "'receiptroller-books'"
FILL = f"""
INSERT INTO events (organization, id, type, timestamp, content_hash, deliveries, body, created_at, key)
    SELECT 'default', printf('evt_%010d', i), CASE i % 4 WHEN 0 THEN 'sale.created' WHEN 1 THEN 'stock.changed' ELSE 'order.updated' END,
        t, x'00112233445566778899aabbccddeeff', 1,
        CAST(printf('{{"id":"evt_%010d","type":"sale.created","timestamp":"2026-11-30T09:00:00.000Z","data":{{"id":"K%d"}}}}', i, i / 3) AS BLOB),
        t, CASE WHEN i % 3 = 0 THEN 'K' || (i / 3) END FROM n;
INSERT INTO waiting (organization, event, webhook, due_at, attempt, spoiled, run, created_at)
    SELECT 'default', printf('evt_%010d', i), {HOOK}, $NOW + 864000000 + i, 1, 0, 1, t FROM n WHERE i % 50 = 7;
INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at, run, created_at)
    SELECT 'default', printf('evt_%010d', i), {HOOK},
        CASE WHEN i % 200 = 0 THEN 'exhausted' WHEN i % 1000 = 1 THEN 'cancelled' ELSE 'delivered' END, '', t, 1, t FROM n WHERE i % 50 <> 7;
INSERT INTO attempts (organization, event, webhook, run, number, started_at, duration_micros, http_status, failure, error, response_body)
    SELECT 'default', printf('evt_%010d', i), {HOOK}, 1, 1, t, 2000 + i % 50000,
        CASE WHEN i % 200 = 0 OR i % 50 = 7 THEN 500 ELSE 200 END, NULL, '', CASE WHEN i % 200 = 0 THEN CAST('no room' AS BLOB) ELSE x'' END FROM n;
INSERT INTO undelivered (organization, event, webhook, kind, timestamp)
    SELECT 'default', printf('evt_%010d', i), {HOOK}, 'exhausted', t FROM n WHERE i % 200 = 0;
INSERT INTO undelivered (organization, event, webhook, kind, timestamp, off_since)
    SELECT 'default', printf('evt_%010d', i), 'w20', 'missed', t, $NOW - 86400000 FROM n WHERE i % 4 = 1 AND i > $N * 0.7;
INSERT INTO inbox_rows (position, organization, provider, delivery, source, type, key, micros, rank, event, received_at, due_since, state, reason)
    SELECT i, 'default', 'receiptroller', {ID}, CASE WHEN i < 50 THEN 'rare' ELSE 'receiptroller' END, 'sale.created', 'K' || (i / 3),
        t * 1000, 0, {ID}, t, t, CASE WHEN i % 50 = 3 THEN 'waiting' WHEN i % 100 = 1 THEN 'parked' WHEN i % 1000 = 2 THEN 'dead' ELSE 'done' END, ''
    FROM n ORDER BY i;
INSERT INTO inbox_bodies
    SELECT i, CAST(printf('{{"id":"%s","type":"sale.created","timestamp":"2026-11-30T09:15:00.000Z","data":{{"id":"K%d"}}}}', {ID}, i / 3) AS BLOB) FROM n;
INSERT INTO effects SELECT 'default', 'receiptroller', {ID}, {ROUTE}, CASE WHEN i % 1000 = 2 THEN 'dead' ELSE 'done' END, 0, 'answered 200', t
    FROM n WHERE i % 50 <> 3 AND i % 100 <> 1 ORDER BY 3;
INSERT INTO work (organization, route, provider, lane, micros, rank, event, delivery, failures, error, due_since)
    SELECT 'default', {ROUTE}, 'receiptroller', 'K' || (i / 3), t * 1000, 0, {ID}, {ID}, 3, 'answered 500', t FROM n WHERE i % 50 = 3 ORDER BY 4;
INSERT OR IGNORE INTO lanes (organization, route, provider, lane, due_at, claim)
    SELECT 'default', {ROUTE}, 'receiptroller', 'K' || (i / 3), $NOW + 864000000 + i, 1 FROM n WHERE i % 50 = 3 ORDER BY 4
"""
PAGES = """/
/webhooks
/webhooks/w01
/webhooks/w20
/webhooks/w01?httpStatus=5xx
/webhooks/w01?httpStatus=404
/deliveries
/deliveries?find=evt_0000500000
/deliveries?find=K166666
/deliveries?find=nothing-like-this
/deliveries?state=exhausted
/deliveries?state=waiting
/deliveries?state=delivered
/deliveries?type=order.updated
/deliveries?type=other.*
/deliveries?webhook=w03
/deliveries?webhook=w19
/deliveries?httpStatus=5xx
/deliveries?httpStatus=404
/deliveries?state=exhausted&webhook=w19
/events/evt_0000500000
/inbox
/inbox?state=parked
/inbox?state=done
/inbox?source=rare
/inbox?state=parked&source=rare
/inbox?state=done&source=rare
/inbox?key=K166666
/inbox?route=receiptroller-books
/inbox?route=none
/inbox/receiptroller/$ID
/reconcile
/tail""".split()


def fill(path, rows):
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-4000000"):
        db.execute("PRAGMA " + pragma)
    now = int(time.time() * 1000)
    db.create_function("at", 1, lambda i: int(now - (rows - i) * HISTORY_MS / rows), deterministic=True)
    marks = ",".join("?" * len(TABLES))
    indexes = db.execute(f"SELECT name, sql FROM sqlite_master WHERE type='index' AND sql IS NOT NULL AND tbl_name IN ({marks})", TABLES).fetchall()
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    db.execute(f"CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {rows}) SELECT i, at(i) AS t FROM c")
    for hook in range(1, 21):
        off, events = (now - 86_400_000, '["stock.*"]') if hook == 20 else (None, '["*"]')
        db.execute("INSERT INTO webhooks (organization, id, url, events, description, secret, off_since, created_at) VALUES ('default', ?, ?, ?, '', 'secret-of-a-trial', ?, ?)",
                   (f"w{hook:02}", f"https://w{hook:02}.example/hook", events, off, now - HISTORY_MS))
    for statement in FILL.replace("$NOW", str(now)).replace("$N", str(rows)).split(";"):
        db.execute("BEGIN")
        db.execute(statement)
        db.execute("COMMIT")
    for _, sql in indexes:
        db.execute(sql)


def measure(url, times):
    row = format(500_000 * 2654435761 & 4294967295, "08x")
    for page in PAGES:
        page = page.replace("$ID", row)
        address = f"{url}/console/o/default{page if page != '/' else ''}"
        ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", address]
        answers = [subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split() for _ in range(times)]
        taken = [float(answer[1]) for answer in answers]
        print(f"{answers[0][0]}  first {taken[0]:.3f} s  median {sorted(taken)[times // 2]:.3f} s  {page}", flush=True)


match sys.argv[1:]:
    case ["fill", path]:
        fill(path, 10_000_000)
    case ["fill", path, rows]:
        fill(path, int(rows))
    case ["time", url]:
        measure(url, 7)
    case ["time", url, times]:
        measure(url, int(times))
    case _:
        sys.exit(__doc__)

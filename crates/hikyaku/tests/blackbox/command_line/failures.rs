//! What the commands say and exit with when they fail.

use super::CommandLine;
use crate::harness::{Config, NOBODY, Server};

const TOKEN: &str = "configured-0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn every_kind_of_failure_has_its_exit_code_and_says_what_to_do() {
    let server = Server::start(Config::default().env("HIKYAKU_API__TOKEN", TOKEN)).await;
    let without = CommandLine::of(&server);
    let with = without.clone().env("HIKYAKU_TOKEN", TOKEN);
    let unreached = CommandLine::at(NOBODY.parse().unwrap());
    let list = ["webhooks", "list"];
    assert_eq!(with.run(&list).await.code, 0);
    for (cli, arguments, code, said) in [
        (&without, &list[..], 4, "HIKYAKU_TOKEN"),
        (&without, &["webhooks", "list", "--token", "hik_no-such-token"], 4, "401"),
        (&with, &["events", "show", "none"], 5, "none"),
        (&with, &["webhooks", "create", "http://10.0.0.1/"], 1, "10.0.0.1"),
        (&with, &["webhooks", "create", "http://127.0.0.1/", "--set", "actve=true"], 1, "actve"),
        (&with, &["webhooks", "update", "wh_1"], 2, "nothing to change"),
        (&with, &["webhooks", "list", "--server", "https://example.org"], 2, "http://HOST:PORT"),
        (&with, &["webhooks", "list", "--organization", "a b"], 2, "--organization"),
        (&with, &["events", "publish", "--type", "a.b"], 2, "--data"),
        (&with, &["events", "publish", "--type", "a.b", "--data", "{"], 2, "no JSON"),
        (&with, &["events", "publish", "--file", "/not/there"], 2, "/not/there"),
        (&unreached, &list, 3, "hikyaku serve"),
        (&unreached, &["inbox", "list"], 3, "refused"),
    ] {
        let ran = cli.run(arguments).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.contains(TOKEN), "{ran:?}");
    }
}

#[tokio::test]
async fn what_the_commands_are_told_in_variables_is_no_setting_of_the_server() {
    let config = Config::default()
        .env("HIKYAKU_SERVER", "http://127.0.0.1:1")
        .env("HIKYAKU_TOKEN", TOKEN)
        .env("HIKYAKU_ORGANIZATION", "acme");
    let server = Server::start(config).await;
    assert_eq!(CommandLine::of(&server).run(&["webhooks", "list"]).await.code, 0);
}

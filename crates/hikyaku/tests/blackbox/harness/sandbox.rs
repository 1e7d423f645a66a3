//! `hikyaku sandbox` as a process: the provider whose lists and webhooks a test compares with.

use std::process::Stdio;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{SOURCE_SECRET, within};

/// The organization of the sandbox's shops.
const SHOPS: &str = "org-sandbox";

/// A running sandbox, and somebody who is logged in there.
pub(crate) struct Sandbox {
    /// Where its API is.
    pub(crate) url: String,
    client: Client,
    token: String,
    _process: Child,
}

impl Sandbox {
    /// One that sells from now on, so many times an hour, and takes no orders.
    pub(crate) async fn selling(sales_per_hour: u32) -> Self {
        let sales = sales_per_hour.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
        command.args(["sandbox", "--listen", "127.0.0.1:0", "--orders-per-hour", "0", "--sales-per-hour", &sales]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let first = within("the sandbox to listen", said.next_line()).await.unwrap().unwrap();
        let url = first.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
        let client = Client::builder().no_proxy().build().unwrap();
        let mut sandbox = Self { url, client, token: String::new(), _process: process };
        let login = json!({"userName": "sandbox", "password": "sandbox"});
        let answer = sandbox.call(Method::POST, "/account/login", &login).await;
        sandbox.token = answer["token"].as_str().unwrap().to_owned();
        sandbox
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// Registers a webhook that is signed with the secret of the source `receiptroller`; gives its id.
    pub(crate) async fn webhook(&self, url: &str, active: bool) -> String {
        let webhook = json!({"url": url, "active": active, "secret": SOURCE_SECRET});
        let made = self.call(Method::POST, &format!("/{SHOPS}/webhook/create"), &webhook).await;
        made["id"].as_str().unwrap().to_owned()
    }

    /// Changes a webhook.
    pub(crate) async fn change(&self, webhook: &str, mut change: Value) {
        change["id"] = webhook.into();
        self.call(Method::POST, &format!("/{SHOPS}/webhook/update"), &change).await;
    }

    /// Whether a webhook is on.
    pub(crate) async fn is_active(&self, webhook: &str) -> bool {
        self.call(Method::GET, &format!("/{SHOPS}/webhook/{webhook}"), &Value::Null).await["active"] == true
    }

    /// What its clock shows.
    pub(crate) async fn now(&self) -> String {
        self.call(Method::GET, "/sandbox", &Value::Null).await["now"].as_str().unwrap().to_owned()
    }

    /// Restarts the provider; gives how many retries that has lost.
    pub(crate) async fn restart(&self) -> u64 {
        self.call(Method::POST, "/sandbox/restart", &Value::Null).await["retriesLost"].as_u64().unwrap()
    }

    /// The sales of a half-open period that its list has: their keys, and what they came to.
    pub(crate) async fn sales(&self, from: &str, to: &str) -> Vec<(String, i64)> {
        let (mut sales, mut page) = (Vec::new(), 1);
        loop {
            let path = format!("/{SHOPS}/transactions?from={from}&to={to}&itemsPerPage=1000&currentPage={page}");
            let list = self.call(Method::GET, &path, &Value::Null).await;
            let items = list["items"].as_array().unwrap();
            sales.extend(items.iter().map(|item| {
                let total = item["paymentSummary"]["grandTotal"].as_i64().unwrap();
                (item["id"].as_str().unwrap().to_owned(), total)
            }));
            if list["totalPages"].as_u64() <= Some(page) {
                sales.sort();
                return sales;
            }
            page += 1;
        }
    }

    /// The `[[reconcile]]` named `sales` that compares the source `receiptroller` with it; more settings may follow.
    pub(crate) fn reconcile(&self) -> String {
        format!(
            "[[reconcile]]\nname = \"sales\"\nsource = \"receiptroller\"\nadapter = \"receiptroller-transactions\"\n\
             url = \"{0}\"\nprovider_organization = \"{SHOPS}\"\nlogin = \"{0}/account/login\"\nuser = \"sandbox\"\n\
             password = \"sandbox\"\nevery = \"30d\"\n",
            self.url
        )
    }
}

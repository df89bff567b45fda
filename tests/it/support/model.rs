//! The mock model as a process of its own, to be killed.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use reqwest::Method;
use serde_json::Value;

use super::{RestClient, eventually};

/// A running `colloquy mock-llm`. Ends with the value.
pub struct ModelProcess {
    child: Child,
    port: u16,
    options: Vec<String>,
    rest: RestClient,
}

impl ModelProcess {
    /// Starts one with these options on the command line, which it has again when it is restarted.
    pub async fn start(options: &[&str]) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Self::start_at(port, options).await
    }

    async fn start_at(port: u16, options: Vec<String>) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let child = Command::new(env!("CARGO_BIN_EXE_colloquy"))
            .args(["mock-llm", "--listen", &listen])
            .args(&options)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let model = Self {
            child,
            port,
            options,
            rest: RestClient::new(listen.parse().unwrap(), String::new()),
        };
        eventually("the model answers", async || {
            let asked = model.rest.attempt(Method::GET, "/v1/models", None).await;
            asked.ok()?.0.is_success().then_some(())
        })
        .await;
        model
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Another one at the same address, which has counted nothing yet.
    pub async fn restart(&mut self) {
        self.kill();
        *self = Self::start_at(self.port, std::mem::take(&mut self.options)).await;
    }

    /// What a client takes as its base URL.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Changes its settings.
    pub async fn control(&self, patch: &Value) {
        self.rest.post("/control", patch).await;
    }

    /// Calls of a task so far.
    pub async fn calls(&self, task: &str) -> u64 {
        let stats = self.rest.get("/control/stats").await;
        stats["calls"][task].as_u64().unwrap_or_default()
    }

    /// The last requests of a task, the newest last.
    pub async fn requests(&self, task: &str) -> Vec<Value> {
        let requests = self.rest.get(&format!("/control/requests/{task}")).await;
        requests.as_array().unwrap().clone()
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

//! The mock model as a separate process that tests can kill.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use reqwest::Method;
use serde_json::Value;

use super::{RestClient, eventually};

/// A running `colloquy mock-llm`, which stops when dropped.
pub struct ModelProcess {
    child: Child,
    port: u16,
    options: Vec<String>,
    rest: RestClient,
}

impl ModelProcess {
    /// Starts a model with these command-line options. A restarted model has the same options.
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

    /// Starts another process at the same address, with its counts at zero.
    pub async fn restart(&mut self) {
        self.kill();
        *self = Self::start_at(self.port, std::mem::take(&mut self.options)).await;
    }

    /// Returns the base URL for clients.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Changes the settings.
    pub async fn control(&self, patch: &Value) {
        self.rest.post("/control", patch).await;
    }

    /// Returns the number of calls for a task so far.
    pub async fn calls(&self, task: &str) -> u64 {
        let stats = self.rest.get("/control/stats").await;
        stats["calls"][task].as_u64().unwrap_or_default()
    }

    /// Returns the last requests for a task, newest last.
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

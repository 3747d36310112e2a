//! A headless browser and one page in it, spoken to by the DevTools protocol.
//!
//! **Not here**: what a page should be.

use serde_json::{Value, json};
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client};

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Looks for the browser's port, one every 100 ms.
const LOOKS: u32 = 600;
/// How long an answer may take before the browser counts as dead.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    asked: u64,
    /// What the page said and asked for since it was last shown.
    pub(crate) events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one, if one is installed.
    pub(crate) fn start() -> Option<Browser> {
        let profile = TempDir::new().unwrap();
        let child = NAMES.iter().find_map(|name| spawn(name, profile.path()).ok())?;
        let (port, path) = port(profile.path()).expect("a browser that was started says its port");
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = client(format!("ws://127.0.0.1:{port}{path}"), stream).unwrap();
        let (session, events) = (String::new(), Vec::new());
        let mut browser = Browser { child, socket, session, asked: 0, events, _profile: profile };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = &page["targetId"];
        let attached =
            browser.ask("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Asks for something and waits for the answer; what happens meanwhile is kept.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        loop {
            let answer = self.hear();
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }
    fn hear(&mut self) -> Value {
        let message = self.socket.read().expect("the browser answers");
        let heard: Value = serde_json::from_str(message.to_text().unwrap_or("null")).unwrap();
        if heard["id"].is_null() {
            self.events.push(heard.clone());
        }
        heard
    }

    /// Shows a file on a screen of this width, dark or light, and waits until it is loaded.
    pub(crate) fn show(&mut self, file: &Path, width: u32, theme: &str) {
        let screen =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": true });
        self.ask("Emulation.setDeviceMetricsOverride", screen);
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.events.clear();
        self.ask("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.hear();
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, profile: &Path) -> io::Result<Child> {
    Command::new(name)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--remote-debugging-port=0", "about:blank"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The port and the address of the browser's end of the protocol, which it writes down when it is
/// ready.
fn port(profile: &Path) -> Option<(u16, String)> {
    for _ in 0..LOOKS {
        let text = fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        if let Some((port, path)) = text.trim().split_once('\n') {
            return Some((port.parse().ok()?, path.to_owned()));
        }
        sleep(Duration::from_millis(100));
    }
    None
}

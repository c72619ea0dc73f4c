//! nginx as a reverse proxy in front of the origin, tuned as one would for large objects: nothing is written to disk, bodies
//! stream both ways, connections are kept on both sides, buffers are large, nothing is logged. What enters is the origin's
//! address; what leaves are nginx's own and the processes that take its CPU time. Invariant: it ends with this value.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::process::ANYWHERE;
use crate::common::{Fallible, fail};

/// How often it is tried to connect before nginx is given up, with a pause each.
const TRIES: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);

/// The program, if it is on the `PATH`.
const PROGRAM: &str = "nginx";

/// What it calls itself; nothing if it is not installed.
pub fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("-v").output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Some(said.strip_prefix("nginx version: ").unwrap_or(&said).to_owned())
}

/// A running nginx.
pub struct Nginx {
    child: Child,
    /// Where it answers.
    pub address: SocketAddr,
    /// The master and its workers.
    pub pids: Vec<u32>,
    /// The folder with its settings, which ends with it.
    _dir: tempfile::TempDir,
}

impl Nginx {
    /// Starts one in front of `origin` with so many workers; `None` where it is not installed.
    pub fn start(origin: SocketAddr, workers: usize) -> Fallible<Option<Self>> {
        if version().is_none() {
            return Ok(None);
        }
        let dir = tempfile::tempdir()?;
        // It cannot be asked for any free port, so one that was free a moment ago has to do.
        let address = TcpListener::bind(ANYWHERE)?.local_addr()?;
        let (file, log) = (dir.path().join("nginx.conf"), dir.path().join("log"));
        std::fs::write(&file, settings(origin, address, workers))?;
        let child = Command::new(PROGRAM)
            .arg("-p")
            .arg(dir.path())
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut nginx = Self { child, address, pids: Vec::new(), _dir: dir };
        for _ in 0..TRIES {
            let master = nginx.child.id();
            let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
            let running: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            if running.len() == workers && TcpStream::connect(address).is_ok() {
                nginx.pids = std::iter::once(master).chain(running).collect();
                return Ok(Some(nginx));
            }
            pause();
        }
        fail(format!("nginx did not start: {}", std::fs::read_to_string(log).unwrap_or_default().trim()))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its master ends its workers; one that was killed would leave them.
        let master = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(master) = master {
            let _ = kill_process(master, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime here, and no simulated time")]
fn pause() {
    std::thread::sleep(PAUSE);
}

fn settings(origin: SocketAddr, address: SocketAddr, workers: usize) -> String {
    format!(
        r#"daemon off;
worker_processes {workers};
pid nginx.pid;
error_log log error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 100000000;
    tcp_nodelay on;
    client_max_body_size 0;
    client_body_buffer_size 64k;
    upstream origin {{
        server {origin};
        keepalive 256;
        keepalive_requests 100000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_request_buffering off;
            proxy_buffers 16 64k;
            proxy_buffer_size 64k;
            proxy_busy_buffers_size 512k;
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"#
    )
}

//! A proxy in front of a server that can vanish silently. It keeps connections and accepts new ones, but forwards
//! nothing, as after a power loss or a cut cable.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// A running proxy, which stops when dropped.
pub struct BlackholeProxy {
    address: SocketAddr,
    swallows: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl BlackholeProxy {
    /// Starts a proxy before the Postgres server in `url`, and returns the proxy with its URL.
    pub fn on_postgres(url: &str) -> (Self, String) {
        let (place, database) = url.rsplit_once('/').expect("a URL with a database");
        let (before, server) = place.rsplit_once('@').expect("a URL with a role");
        let hole = Self::start(server);
        let url = format!("{before}@{}/{database}?sslmode=disable", hole.address);
        (hole, url)
    }

    fn start(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let hole = Self {
            address: listener.local_addr().unwrap(),
            swallows: Arc::default(),
            ended: Arc::default(),
        };
        let (server, swallows, ended) = (server.to_owned(), hole.swallows.clone(), hole.ended.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Acquire) {
                    break;
                }
                let upstream = TcpStream::connect(&server).unwrap();
                // A connection that lost a byte stays unusable.
                let broken = Arc::new(AtomicBool::new(false));
                for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (swallows, broken) = (swallows.clone(), broken.clone());
                    thread::spawn(move || {
                        let _ = forward_bytes(&from, &to, &swallows, &broken);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        hole
    }

    /// Swallows all traffic, or forwards again, on new connections and on connections without loss.
    pub fn set_swallowing(&self, swallows: bool) {
        self.swallows.store(swallows, Ordering::SeqCst);
    }
}

impl Drop for BlackholeProxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn forward_bytes(
    mut from: &TcpStream,
    mut to: &TcpStream,
    swallows: &AtomicBool,
    broken: &AtomicBool,
) -> io::Result<()> {
    to.set_nodelay(true)?;
    let mut some = [0; 16_384];
    loop {
        let read = from.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        if swallows.load(Ordering::SeqCst) {
            broken.store(true, Ordering::SeqCst);
        }
        if !broken.load(Ordering::SeqCst) {
            to.write_all(&some[..read])?;
        }
    }
}

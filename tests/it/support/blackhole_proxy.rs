//! A proxy in front of a server that can vanish without a word: it keeps its connections and takes new ones, and
//! nothing comes through any more, as when a host loses its power or a cable is cut.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Ends with the value.
pub struct BlackholeProxy {
    address: SocketAddr,
    swallows: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl BlackholeProxy {
    /// In front of the Postgres server that `url` names; with the URL to reach it by.
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
                // What has missed a byte is of no use for good.
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

    /// From now on nothing comes through, or all of it again: on connections that have lost nothing, and on new ones.
    pub fn set_swallowing(&self, swallows: bool) {
        self.swallows.store(swallows, Ordering::SeqCst);
    }
}

impl Drop for BlackholeProxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // So that the listener looks.
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

//! A connection between members of a cluster that can be cut.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Maximum length of the head of a request between members.
const HEAD_OCTETS_MAX: usize = 16 * 1024;

/// Forwards the requests of members to one of them, except those of cut members.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<Cut>,
}

/// The members that are cut.
#[derive(Clone, Default)]
pub(crate) enum Cut {
    #[default]
    None,
    All,
    /// The member with this id.
    One(String),
}

impl Cut {
    fn holds(&self, sender: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::One(id) => id == sender,
        }
    }
}

impl Relay {
    pub(crate) async fn before(member: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, cuts) = watch::channel(Cut::None);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, member, cuts.clone()));
            }
        });
        Self { address, cut }
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.cut.send_replace(cut);
    }
}

/// Forwards one connection. Members use HTTP and send their id in every request; one connection
/// belongs to one member.
async fn pass(mut from: TcpStream, member: SocketAddr, mut cuts: watch::Receiver<Cut>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_OCTETS_MAX || !matches!(from.read_buf(&mut head).await, Ok(1..)) {
            return;
        }
    }
    let text = String::from_utf8_lossy(&head);
    let sender = text
        .lines()
        .find_map(|line| line.strip_prefix("X-Server-From: "));
    let sender = sender.unwrap_or_default().trim().to_owned();
    if cuts.borrow().holds(&sender) {
        return;
    }
    let Ok(mut to) = TcpStream::connect(member).await else {
        return;
    };
    if to.write_all(&head).await.is_err() {
        return;
    }
    tokio::select! {
        _ = copy_bidirectional(&mut from, &mut to) => {}
        _ = cuts.wait_for(|cut| cut.holds(&sender)) => {}
    }
}

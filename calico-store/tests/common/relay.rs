//! A wire between members of a cluster that can be cut.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Longest head of a request of one member to another.
const HEAD_OCTETS_MAX: usize = 16 * 1024;

/// Passes on what members send to one of them, but for those that are cut off from it.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<Cut>,
}

/// Who does not get through.
#[derive(Clone, Default)]
pub(crate) enum Cut {
    #[default]
    Nobody,
    Everybody,
    /// The member of this id.
    One(String),
}

impl Cut {
    fn holds(&self, sender: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::One(id) => id == sender,
        }
    }
}

impl Relay {
    pub(crate) async fn before(member: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, cuts) = watch::channel(Cut::Nobody);
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

/// Members talk HTTP and say who they are in every request; one connection is of one member.
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

//! Rates and times of flows between two workloads: one thread at each end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use socket2::SockRef;

use super::pace::Pace;
use crate::fabric::Workload;
use crate::limits::{FLOW_OPENED_WITHIN, STREAM_OCTETS};

/// Returns the octets a second that one TCP connection carries.
pub fn stream([from, to]: [&Workload; 2], port: u16, time: Duration) -> Result<f64> {
    let listener = listen(to, port)?;
    // Connected before the far end waits for it.
    let mut client = connect(from, &listener)?;
    thread::scope(move |scope| {
        let server = scope.spawn(move || {
            let (mut server, _) = listener.accept()?;
            server.set_read_timeout(Some(FLOW_OPENED_WITHIN))?;
            let (mut octets, mut count) = (vec![0; STREAM_OCTETS], 0);
            let began = Instant::now();
            loop {
                match server.read(&mut octets)? {
                    0 => return anyhow::Ok(count as f64 / began.elapsed().as_secs_f64()),
                    more => count += more,
                }
            }
        });
        let (octets, began) = (vec![0; STREAM_OCTETS], Instant::now());
        while began.elapsed() < time {
            client.write_all(&octets)?;
        }
        drop(client);
        server.join().map_err(|_| anyhow!("a reader panicked"))?
    })
}

/// Returns the milliseconds of round trips of one octet in an established TCP connection, each after a
/// pause if there is one.
pub fn round_trips(
    [from, to]: [&Workload; 2],
    port: u16,
    count: usize,
    gap: Option<Duration>,
) -> Result<Vec<f64>> {
    let listener = listen(to, port)?;
    // Connected before the far end waits for it.
    let mut client = connect(from, &listener)?;
    thread::scope(move |scope| {
        let server = scope.spawn(move || {
            let (mut server, _) = listener.accept()?;
            server.set_nodelay(true)?;
            let mut octet = [0];
            while server.read(&mut octet)? > 0 {
                server.write_all(&octet)?;
            }
            anyhow::Ok(())
        });
        client.set_nodelay(true)?;
        let mut times = Vec::with_capacity(count);
        let pace = Pace::new();
        for _ in 0..count {
            if let Some(gap) = gap {
                pace.pause(gap);
            }
            let began = Instant::now();
            client.write_all(&[0])?;
            client.read_exact(&mut [0]).context("an answer")?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        drop(client);
        let ended = server.join();
        ended.map_err(|_| anyhow!("an answerer panicked"))??;
        Ok(times)
    })
}

/// Returns how many TCP connections a second are opened and closed, one after the other.
pub fn opened([from, to]: [&Workload; 2], port: u16, count: u32) -> Result<f64> {
    let listener = listen(to, port)?;
    let target = listener.local_addr()?;
    from.host.run(|| {
        let began = Instant::now();
        for _ in 0..count {
            let client = TcpStream::connect_timeout(&target, FLOW_OPENED_WITHIN)?;
            let (server, _) = listener.accept()?;
            // The ends leave no states, which would use up the ports.
            SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
            drop((client, server));
        }
        anyhow::Ok(f64::from(count) / began.elapsed().as_secs_f64())
    })?
}

fn listen(to: &Workload, port: u16) -> Result<TcpListener> {
    let bind = || TcpListener::bind((to.address(), port));
    to.host.run(bind)?.context("listening")
}

fn connect(from: &Workload, listener: &TcpListener) -> Result<TcpStream> {
    let target = listener.local_addr()?;
    let connect = || TcpStream::connect_timeout(&target, FLOW_OPENED_WITHIN);
    let client = from.host.run(connect)?.context("connecting")?;
    client.set_read_timeout(Some(FLOW_OPENED_WITHIN))?;
    client.set_write_timeout(Some(FLOW_OPENED_WITHIN))?;
    Ok(client)
}

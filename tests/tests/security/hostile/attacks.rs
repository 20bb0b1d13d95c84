//! What anybody can do who reaches the port.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::join_all;
use kruise_tests::process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Outcome;
use crate::leader::Target;
use crate::wire::{self, Wire, data, reset};

const HALF_OPEN: usize = 2_000;
const SILENT: usize = 200;
const STREAMS: usize = 10_000;
/// No attack may last longer, whatever it comes to.
const LIMIT: Duration = Duration::from_secs(20);
const ATTACH: &str = "/kruise.dispatch.v1.DispatchService/Attach";

pub(super) async fn all(target: &Target, token: &str) -> Result<Vec<Outcome>> {
    let tls = wire::tls(&target.bundle)?;
    Ok(vec![
        rapid_reset(target, &tls, Some(token)).await?,
        many_streams(target, &tls, Some(token)).await?,
        many_calls(target, &tls, token).await?,
        half_open(target).await?,
        silent_after_handshake(target, &tls).await?,
        garbage(target, &tls).await?,
        endless_headers(target, &tls).await?,
        large_message(target, &tls).await?,
        rapid_reset(target, &tls, None).await?,
        many_streams(target, &tls, None).await?,
        refused_and_stays(target, &tls).await?,
    ])
}

fn outcome(name: &'static str, out: &[Duration], how: impl Into<String>) -> Outcome {
    Outcome {
        name,
        offenders: out.len(),
        out: out.iter().max().copied().unwrap_or_default(),
        how: how.into(),
    }
}

/// Time from an offence to the end of the connection.
async fn cut(wire: &mut Wire, since: Instant) -> Result<Duration> {
    let closed = wire.until_closed(LIMIT).await.context("it was never cut")?;
    Ok(closed.saturating_duration_since(since))
}

/// Connections on which not even a handshake begins.
async fn half_open(target: &Target) -> Result<Outcome> {
    let mut open = Vec::new();
    for _ in 0..HALF_OPEN {
        open.push((TcpStream::connect(target.address).await?, Instant::now()));
    }
    let files = process::open_files(target.process.pid)?;
    let cut = open.into_iter().map(|(mut stream, since)| async move {
        let mut byte = [0];
        // An end or a reset, it is all the same.
        let read = tokio::time::timeout(LIMIT, stream.read(&mut byte)).await;
        read.map(|_| since.elapsed()).context("it was never cut")
    });
    let cut: Vec<Duration> = join_all(cut).await.into_iter().collect::<Result<_>>()?;
    Ok(outcome(
        "half-open connections",
        &cut,
        format!("{files} files open at the leader"),
    ))
}

async fn silent_after_handshake(target: &Target, tls: &TlsConnector) -> Result<Outcome> {
    let mut open = Vec::new();
    for _ in 0..SILENT {
        open.push((Wire::connect(target, tls).await?, Instant::now()));
    }
    let cuts = open
        .into_iter()
        .map(|(mut wire, since)| async move { cut(&mut wire, since).await });
    let cuts: Vec<Duration> = join_all(cuts).await.into_iter().collect::<Result<_>>()?;
    Ok(outcome("silent after the handshake", &cuts, ""))
}

/// Other protocols, and none.
async fn garbage(target: &Target, tls: &TlsConnector) -> Result<Outcome> {
    let mut cuts = Vec::new();
    let noise: Vec<u8> = (0..4_096_u32).map(|n| (n * 7_919 % 251) as u8).collect();
    for bytes in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), &noise, &[0; 64]] {
        let mut plain = TcpStream::connect(target.address).await?;
        let since = Instant::now();
        plain.write_all(bytes).await?;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LIMIT, plain.read_to_end(&mut answer)).await;
        read.context("it was never cut")?.ok();
        cuts.push(since.elapsed());
        let mut wire = Wire::connect(target, tls).await?;
        let since = Instant::now();
        wire.send(bytes).await?;
        cuts.push(cut(&mut wire, since).await?);
    }
    Ok(outcome("garbage, plain and under TLS", &cuts, ""))
}

/// Continuations of a header block without end (a flood that has brought servers down by memory).
async fn endless_headers(target: &Target, tls: &TlsConnector) -> Result<Outcome> {
    let mut wire = Wire::connect(target, tls).await?;
    wire.begin(&[]).await?;
    let since = Instant::now();
    let (first, more) = wire.endless_headers();
    let mut sent = first.len();
    let mut result = wire.send(&first).await;
    while result.is_ok() && sent < 64 << 20 && since.elapsed() < LIMIT {
        result = wire.send(&more).await;
        sent += more.len();
    }
    let out = cut(&mut wire, since).await?;
    Ok(outcome(
        "headers without end",
        &[out],
        format!("after {} KiB", sent >> 10),
    ))
}

/// A message of 64 MiB by a stranger.
async fn large_message(target: &Target, tls: &TlsConnector) -> Result<Outcome> {
    let mut wire = Wire::connect(target, tls).await?;
    wire.begin(&[]).await?;
    let (id, open) = wire.open(ATTACH, None);
    let since = Instant::now();
    wire.send(&open).await?;
    let mut head = vec![0];
    head.extend((64_u32 << 20).to_be_bytes());
    let mut sent = 0_usize;
    let mut result = wire.send(&data(id, &head)).await;
    let piece = data(id, &[0; 16_384]);
    while result.is_ok() && sent < 64 << 20 && since.elapsed() < LIMIT {
        result = wire.send(&piece).await;
        sent += 16_384;
    }
    let out = cut(&mut wire, since).await?;
    Ok(outcome(
        "a message of 64 MiB without a token",
        &[out],
        format!("after {} KiB", sent >> 10),
    ))
}

/// Streams that are opened and reset as fast as one can write (CVE-2023-44487).
async fn rapid_reset(target: &Target, tls: &TlsConnector, token: Option<&str>) -> Result<Outcome> {
    let mut wire = Wire::connect(target, tls).await?;
    wire.begin(&[]).await?;
    let since = Instant::now();
    let mut sent = 0;
    while sent < STREAMS {
        let (id, open) = wire.open("/grpc.health.v1.Health/Check", token);
        if wire.send(&[open, reset(id)].concat()).await.is_err() {
            break;
        }
        sent += 1;
    }
    let out = cut(&mut wire, since).await?;
    let name = match token {
        Some(_) => "rapid reset with a token",
        None => "rapid reset",
    };
    Ok(outcome(name, &[out], format!("after {sent} streams")))
}

/// More streams than the settings allow.
async fn many_streams(target: &Target, tls: &TlsConnector, token: Option<&str>) -> Result<Outcome> {
    let mut wire = Wire::connect(target, tls).await?;
    wire.begin(&[]).await?;
    let since = Instant::now();
    let mut sent = 0;
    while sent < STREAMS {
        let (_, open) = wire.open("/grpc.health.v1.Health/Check", token);
        if wire.send(&open).await.is_err() {
            break;
        }
        sent += 1;
    }
    let out = cut(&mut wire, since).await?;
    let name = match token {
        Some(_) => "ten thousand streams with a token",
        None => "ten thousand streams",
    };
    Ok(outcome(name, &[out], format!("after {sent} streams")))
}

/// Whole calls, as many as possible, with a token.
async fn many_calls(target: &Target, tls: &TlsConnector, token: &str) -> Result<Outcome> {
    let mut wire = Wire::connect(target, tls).await?;
    wire.begin(&[]).await?;
    let mut calls = Vec::new();
    for _ in 0..STREAMS {
        let (id, open) = wire.open("/grpc.health.v1.Health/Check", Some(token));
        calls.push([open, data(id, &wire::message(&[])), wire::last(id)].concat());
    }
    let since = Instant::now();
    let (mut reading, mut writing) = tokio::io::split(wire.into_stream());
    let write = async {
        let mut sent = 0;
        for call in calls {
            if writing.write_all(&call).await.is_err() || writing.flush().await.is_err() {
                break;
            }
            sent += 1;
            // As fast as a well-behaved client's streams come and go.
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        sent
    };
    let read = async {
        let mut buffer = vec![0; 16 * 1024];
        while matches!(reading.read(&mut buffer).await, Ok(read) if read > 0) {}
        since.elapsed()
    };
    let both = async { tokio::join!(write, read) };
    let (sent, out) = tokio::time::timeout(LIMIT, both)
        .await
        .context("it was never cut")?;
    Ok(outcome(
        "calls without pause with a token",
        &[out],
        format!("after {sent} calls"),
    ))
}

/// Refused, and stays on.
async fn refused_and_stays(target: &Target, tls: &TlsConnector) -> Result<Outcome> {
    let mut cuts = Vec::new();
    for token in [None, Some("garbage")] {
        let mut wire = Wire::connect(target, tls).await?;
        wire.begin(&[]).await?;
        let (_, open) = wire.open(ATTACH, token);
        let since = Instant::now();
        wire.send(&open).await?;
        cuts.push(cut(&mut wire, since).await?);
    }
    Ok(outcome("refused, and stays", &cuts, ""))
}

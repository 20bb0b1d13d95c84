//! What somebody can do who has stolen an agent's token: root on one node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kruise_proto::dispatch::dispatch_service_client::DispatchServiceClient;
use kruise_proto::dispatch::{
    Ack, AttachRequest, Heartbeat, Hello, TaskReport, TokenRenewal, attach_request::Message,
};
use kruise_proto::inspect::ListTasksRequest;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use kruise_proto::task::TaskStatus;
use kruise_tests::cluster::netns_file;
use kruise_tests::net::spawn_in_namespace;
use kruise_tests::product::{Product, viewer_token};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use prost::Message as _;
use tonic::Request;

use super::Outcome;
use crate::call::{Answer, channel};
use crate::leader::{Target, inside};
use crate::wire::{self, Wire, data};

const LIMIT: Duration = Duration::from_secs(20);
const ATTACH: &str = "/kruise.dispatch.v1.DispatchService/Attach";

pub(super) async fn all(
    product: &Product,
    target: &Target,
    node: &str,
    token: &str,
    job: &str,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (name, reason, messages) in out_of_order(node) {
        let ended = inside(product, async || converse(target, token, messages).await)?;
        outcomes.push(expect(name, reason, ended)?);
    }
    outcomes.push(false_reports(product, target, node, token, job).await?);
    outcomes.push(inside(product, async || flood(target, node, token).await)?);
    outcomes.push(inside(product, async || {
        large_message(target, node, token).await
    })?);
    outcomes.push(slow_reader(product, target, node, token).await?);
    Ok(outcomes)
}

fn expect(name: &'static str, reason: &str, ended: (Answer, Duration)) -> Result<Outcome> {
    let (answer, out) = ended;
    anyhow::ensure!(answer.reason == reason, "{name}: {answer:?}");
    Ok(Outcome {
        name,
        offenders: 1,
        out,
        how: answer.reason,
    })
}

fn hello(node: &str) -> Message {
    Message::Hello(Hello {
        node_name: node.to_owned(),
        agent_version: "hostile".into(),
        ..Hello::default()
    })
}

fn report(task: &str, phase: i32) -> Message {
    Message::TaskReport(TaskReport {
        task: Some(TaskStatus {
            task_id: task.to_owned(),
            phase,
            ..TaskStatus::default()
        }),
    })
}

/// Messages in an order that the protocol does not have, and how the stream must end.
fn out_of_order(node: &str) -> Vec<(&'static str, &'static str, Vec<Message>)> {
    let beat = Message::Heartbeat(Heartbeat::default());
    let renewal = Message::TokenRenewal(TokenRenewal {
        token: "garbage".into(),
    });
    vec![
        ("a heartbeat before Hello", "HELLO_WANTED", vec![beat]),
        (
            "a report before Hello",
            "HELLO_WANTED",
            vec![report("x", 4), hello(node)],
        ),
        ("Hello twice", "BAD_MESSAGE", vec![hello(node), hello(node)]),
        (
            "a bad token in mid-stream",
            "TOKEN_INVALID",
            vec![hello(node), renewal],
        ),
    ]
}

/// Sends messages, and answers how the stream ended and when.
async fn converse(target: &Target, token: &str, messages: Vec<Message>) -> Result<(Answer, Duration)> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
    let messages_in = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let mut request = Request::new(messages_in);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse()?);
    let mut client = DispatchServiceClient::new(channel(target).await?);
    let since = Instant::now();
    let send = async {
        for message in messages {
            let message = AttachRequest {
                message: Some(message),
            };
            if sender.send(message).await.is_err() {
                break;
            }
        }
        // Keeps the stream open.
        sender
    };
    let receive = async {
        let mut answers = match client.attach(request).await {
            Err(status) => return Answer::of(&status),
            Ok(response) => response.into_inner(),
        };
        loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Answer::of(&tonic::Status::ok("")),
                Err(status) => return Answer::of(&status),
            }
        }
    };
    let both = async {
        let mut receive = std::pin::pin!(receive);
        let mut send = std::pin::pin!(send);
        tokio::select! {
            answer = &mut receive => answer,
            _open = &mut send => receive.await,
        }
    };
    let answer = tokio::time::timeout(LIMIT, both)
        .await
        .context("it was never cut")?;
    Ok((answer, since.elapsed()))
}

/// Reports about tasks that nobody gave it: unknown ones, and those of the job that runs on other nodes at this moment. They must do nothing; the job's
/// own end tells. The stream then goes on until a second Hello ends it.
async fn false_reports(
    product: &Product,
    target: &Target,
    node: &str,
    token: &str,
    job: &str,
) -> Result<Outcome> {
    let viewer = viewer_token(product)?;
    let tasks = wait_for("a task of the job", Duration::from_secs(20), async || {
        let tasks = inside(product, async || {
            let mut request = Request::new(ListTasksRequest {
                job: job.to_owned(),
                ..ListTasksRequest::default()
            });
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {viewer}").parse()?);
            let mut client = InspectServiceClient::new(channel(target).await?);
            Ok(client.list_tasks(request).await?.into_inner().tasks)
        })?;
        if tasks.is_empty() {
            not_yet("none")
        } else {
            Ok(Seen::Done(tasks))
        }
    })
    .await?;
    let mut messages = vec![hello(node)];
    for id in tasks
        .iter()
        .filter_map(|task| Some(task.status.as_ref()?.task_id.as_str()))
        .chain(["unknown", "", "a/b/c/d", "\u{0}"])
    {
        // Every phase there is, and some that there are not.
        messages.extend((-1..10).map(|phase| report(id, phase)));
    }
    messages.extend([u64::MAX, 0, 1].map(|number| {
        Message::Ack(Ack {
            epoch: number,
            generation: number,
            refusal: 77,
            message: "x".repeat(2_000),
        })
    }));
    messages.push(hello(node));
    let ended = inside(product, async || converse(target, token, messages).await)?;
    let mut outcome = expect("false reports and acknowledgements", "BAD_MESSAGE", ended)?;
    outcome.how = format!("without effect, about {} real tasks too", tasks.len());
    Ok(outcome)
}

/// More messages than anybody has to send.
async fn flood(target: &Target, node: &str, token: &str) -> Result<Outcome> {
    let mut messages = vec![hello(node)];
    messages.extend((0..20_000).map(|n| report(&format!("task-{n}"), 2)));
    expect(
        "twenty thousand reports",
        "TOO_MANY_MESSAGES",
        converse(target, token, messages).await?,
    )
}

/// A message of 64 MiB on a stream that is let in.
async fn large_message(target: &Target, node: &str, token: &str) -> Result<Outcome> {
    let tls = wire::tls(&target.bundle)?;
    let mut wire = Wire::connect(target, &tls).await?;
    wire.begin(&[]).await?;
    let (id, open) = wire.open(ATTACH, Some(token));
    wire.send(&open).await?;
    let first = AttachRequest {
        message: Some(hello(node)),
    };
    wire.send(&data(id, &wire::message(&first.encode_to_vec())))
        .await?;
    let since = Instant::now();
    let mut head = vec![0];
    head.extend((64_u32 << 20).to_be_bytes());
    let mut sent = 0_usize;
    let mut result = wire.send(&data(id, &head)).await;
    let piece = data(id, &[0; 16_384]);
    while result.is_ok() && sent < 64 << 20 && since.elapsed() < LIMIT {
        result = wire.send(&piece).await;
        sent += 16_384;
    }
    let closed = wire.until_closed(LIMIT).await.context("it was never cut")?;
    Ok(Outcome {
        name: "a message of 64 MiB with a token",
        offenders: 1,
        out: closed.saturating_duration_since(since),
        how: format!("after {} KiB", sent >> 10),
    })
}

/// Asks for answers and takes none. That it is out only the leader's log can tell: it reads nothing.
async fn slow_reader(product: &Product, target: &Target, node: &str, token: &str) -> Result<Outcome> {
    let told = || -> Result<usize> { Ok(product.logs(&target.pod)?.matches("SLOW_READER").count()) };
    let before = told()?;
    let done = Arc::new(AtomicBool::new(false));
    let (target_too, node, token, stop) = (
        target.clone(),
        node.to_owned(),
        token.to_owned(),
        Arc::clone(&done),
    );
    let namespace = netns_file(&product.cluster.layout().control_plane());
    let thread = spawn_in_namespace(&namespace, move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(read_nothing(&target_too, &node, &token, &stop))
    });
    let since = Instant::now();
    let waited = wait_for("the leader to give up on it", LIMIT, async || {
        if told()? > before {
            Ok(Seen::Done(since.elapsed()))
        } else {
            not_yet("not told")
        }
    })
    .await;
    done.store(true, Ordering::Relaxed);
    let closed = thread
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let out = waited?;
    Ok(Outcome {
        name: "a reader that does not read",
        offenders: 1,
        out,
        how: format!("SLOW_READER; its connection was closed: {closed}"),
    })
}

/// Sends heartbeats until it cannot or is told to stop, and leaves no room for answers. Answers whether the connection was closed on it.
async fn read_nothing(target: &Target, node: &str, token: &str, stop: &AtomicBool) -> Result<bool> {
    let mut wire = Wire::connect(target, &wire::tls(&target.bundle)?).await?;
    wire.begin(&[(wire::WINDOW, 0)]).await?;
    let (id, open) = wire.open(ATTACH, Some(token));
    wire.send(&open).await?;
    let send = |message: Message| {
        let message = AttachRequest {
            message: Some(message),
        };
        data(id, &wire::message(&message.encode_to_vec()))
    };
    wire.send(&send(hello(node))).await?;
    let mut stamp = 0;
    while !stop.load(Ordering::Relaxed) {
        stamp += 1;
        let beat = Heartbeat {
            stamp,
            ..Heartbeat::default()
        };
        if wire.send(&send(Message::Heartbeat(beat))).await.is_err() {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(wire.until_closed(LIMIT).await.is_some())
}

//! Every way that we know of to be somebody else: each is refused with the right code and reason, and written down with the caller's address
//! and the reason, but never with the token.

mod api;
mod cells;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::Product;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use tonic::Code;

use crate::call::{Answer, Method, call};
use crate::leader::{Target, all_attached, inside, refusals};
use cells::{Cell, Tokens};

/// The manager writes no more than ten refusals a second into its log.
const PACE: Duration = Duration::from_millis(110);
/// Nor does it listen to an address that was refused more than twice a second for bad tokens, once that has happened twenty times.
const SLOW: Duration = Duration::from_millis(520);
const FREE: usize = 18;

#[tokio::test]
async fn nobody_passes_for_anybody_else() -> Result<()> {
    let product = Product::attach("matrix").await?;
    all_attached(&product, Duration::from_secs(60)).await?;
    let target = Target::leader(&product).await?;
    let tokens = Tokens::gather(&product).await?;
    let cells = cells::all(&product, &tokens)?;
    let before = product.logs(&target.pod)?;

    let welcome = [
        (
            "an agent is let in",
            Method::Attach(tokens.ghost.node.clone()),
            tokens.ghost_token.clone(),
        ),
        (
            "an agent asks for health",
            Method::HEALTH,
            tokens.ghost_token.clone(),
        ),
        ("a viewer looks", Method::AGENTS, tokens.viewer.clone()),
    ];
    for (what, method, token) in welcome {
        let header = vec![format!("Bearer {token}").into_bytes()];
        let answer = inside(&product, async || call(&target, &method, &header).await)?;
        assert_eq!(answer.code, Code::Ok, "{what}: {answer:?}");
    }

    let answers = inside(&product, async || ask_all(&target, &cells).await)?;
    let mut table = String::new();
    let mut wrong = 0;
    for (cell, answer) in cells.iter().zip(&answers) {
        let right = answer.code == cell.code && answer.reason == cell.reason;
        wrong += usize::from(!right);
        writeln!(
            table,
            "{:<62} {:<20} {:<17} {:<15} {}",
            cell.what,
            cell.method.name(),
            format!("{:?}", answer.code),
            answer.reason,
            if right {
                "ok".to_owned()
            } else {
                format!(
                    "WRONG, {:?} {} expected; {}",
                    cell.code, cell.reason, answer.message
                )
            },
        )?;
    }
    println!("{table}{} cells at the manager, {wrong} wrong", cells.len());
    assert_eq!(wrong, 0, "\n{table}");
    assert!(cells.len() >= 40, "{} cells", cells.len());

    logged(&product, &target, &cells, &before).await?;
    never_the_token(&product, &cells).await?;
    let rights = api::agents_rights(&product, &tokens).await?;
    println!("{rights} requests at the API server with an agent's tokens, all refused");
    tokens.leave(&product).await?;
    product.leave().await
}

/// All calls, one after the other, no faster than an address is listened to.
async fn ask_all(target: &Target, cells: &[Cell]) -> Result<Vec<Answer>> {
    let mut answers: Vec<Answer> = Vec::new();
    for cell in cells {
        let bad = answers
            .iter()
            .filter(|answer| answer.code == Code::Unauthenticated);
        let is_slow = bad.count() >= FREE && cell.code == Code::Unauthenticated;
        tokio::time::sleep(if is_slow { SLOW } else { PACE }).await;
        loop {
            let answer = call(target, &cell.method, &cell.authorization).await?;
            if answer.reason != "TOO_MANY_FAILURES" {
                answers.push(answer);
                break;
            }
            tokio::time::sleep(SLOW).await;
        }
    }
    Ok(answers)
}

/// As many lines with each reason as there were refusals for it.
async fn logged(product: &Product, target: &Target, cells: &[Cell], before: &str) -> Result<()> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in cells {
        *wanted.entry(cell.reason).or_default() += 1;
    }
    wait_for(
        "each refusal to be in the leader's log",
        Duration::from_secs(10),
        async || {
            let log = product.logs(&target.pod)?;
            let short: Vec<String> = wanted
                .iter()
                .map(|(reason, wanted)| (reason, *wanted, refusals(&log, reason) - refusals(before, reason)))
                .filter(|(_, wanted, seen)| seen < wanted)
                .map(|(reason, wanted, seen)| format!("{reason}: {seen} of {wanted}"))
                .collect();
            if short.is_empty() {
                Ok(Seen::Done(()))
            } else {
                not_yet(short.join(", "))
            }
        },
    )
    .await
}

async fn never_the_token(product: &Product, cells: &[Cell]) -> Result<()> {
    for pod in product.pods("controller-manager").await? {
        let log = product.logs(&pod.metadata.name.unwrap_or_default())?;
        for cell in cells {
            for secret in &cell.secrets {
                assert!(
                    !log.contains(secret.as_str()),
                    "{}: the token is in the log",
                    cell.what
                );
            }
        }
    }
    Ok(())
}

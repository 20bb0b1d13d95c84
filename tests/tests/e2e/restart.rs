//! Containers restarted in place by a request.

use std::time::Duration;

use anyhow::{Context, Result};
use kruise_tests::audit::{Counters, Mark, Request};
use kruise_tests::net::Hooks;
use kruise_tests::product::{Product, Restarts};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Patch, PatchParams};
use serde_json::json;

const A_MINUTE: Duration = Duration::from_secs(60);

/// The test's namespace with one running pod, `app`.
async fn one_pod() -> Result<(Product, Restarts)> {
    let product = Product::attach("restart").await?;
    let restarts = Restarts::of(&product);
    restarts.make_pod("app", None, None).await?;
    restarts.ready("app").await?;
    Ok((product, restarts))
}

fn succeeded(containers: usize) -> Vec<(String, String)> {
    vec![("Succeeded".to_owned(), String::new()); containers]
}

/// The manager's writes on a request, for people.
fn writes_of(product: &Product, mark: Mark, name: &str) -> Result<Vec<String>> {
    let requests = Counters::since(&product.cluster, mark)?.requests.into_iter();
    let writes = requests.filter(|request| {
        request.agent.starts_with("kruise-manager")
            && request.resource.contains("containerrecreaterequests")
            && request.namespace == product.namespace
            && request.name == name
            && !request.is_read()
    });
    let line = |write: Request| {
        let Request {
            received,
            verb,
            resource,
            code,
            source,
            ..
        } = write;
        format!("{received} {verb} {resource} {code} from {source}")
    };
    Ok(writes.map(line).collect())
}

#[tokio::test]
async fn a_named_container_is_restarted_once_and_no_other() -> Result<()> {
    let (product, restarts) = one_pod().await?;
    let mark = Mark::now(&product.cluster)?;
    restarts.ask("once", "app", &["main"], json!({})).await?;
    assert_eq!(restarts.outcome("once").await?, succeeded(1));
    assert_eq!(restarts.counts("app").await?, (1, 0));
    assert!(
        restarts
            .containers("app")
            .await?
            .iter()
            .all(|container| container.ready)
    );
    let request = restarts.requests.get("once").await?;
    let end = request.status.and_then(|status| status.completion_time);
    let begin = request.metadata.creation_timestamp;
    let took = end.zip(begin).map(|(end, begin)| end.0.duration_since(begin.0));
    let took = took.context("it has begun and ended")?;
    let writes = writes_of(&product, mark, "once")?;
    // What runs for longer tells every 10 s how far it is.
    let budget = 3 + usize::try_from(took.as_secs() / 10)?;
    assert!(writes.len() <= budget, "{took:#}:\n{}", writes.join("\n"));
    product.leave().await
}

#[tokio::test]
async fn a_request_for_what_does_not_exist_ends_and_says_so() -> Result<()> {
    let (product, restarts) = one_pod().await?;
    let refused = restarts.ask("nowhere", "app", &["nobody"], json!({})).await;
    let error = format!("{:#}", refused.expect_err("there is no such container"));
    assert!(error.contains("nobody"), "{error}");
    assert_eq!(restarts.counts("app").await?, (0, 0));
    product.leave().await
}

#[tokio::test]
async fn three_requests_made_together_on_one_pod_all_complete() -> Result<()> {
    let (product, restarts) = one_pod().await?;
    let (first, second, third) = tokio::join!(
        restarts.ask("first", "app", &["main", "side"], json!({})),
        restarts.ask("second", "app", &["main"], json!({})),
        restarts.ask("third", "app", &["side"], json!({})),
    );
    first.and(second).and(third)?;
    for (name, containers) in [("first", 2), ("second", 1), ("third", 1)] {
        assert_eq!(restarts.outcome(name).await?, succeeded(containers), "{name}");
    }
    let (main, side) = restarts.counts("app").await?;
    assert!(
        (1..=2).contains(&main) && (1..=2).contains(&side),
        "{main} and {side}"
    );
    product.leave().await
}

#[tokio::test]
async fn a_deadline_within_the_first_hook_ends_both_and_the_second_is_never_stopped() -> Result<()> {
    let product = Product::attach("restart").await?;
    let (restarts, hooks) = (Restarts::of(&product), Hooks::start(&product.cluster)?);
    restarts
        .make_pod("app", None, Some(hooks.lifecycle("main")))
        .await?;
    restarts.ready("app").await?;
    restarts
        .ask(
            "late",
            "app",
            &["main", "side"],
            json!({"activeDeadlineSeconds": 3}),
        )
        .await?;
    let text = "recreating has exceeded the activeDeadlineSeconds";
    let failed = vec![("Failed".to_owned(), text.to_owned()); 2];
    assert_eq!(restarts.outcome("late").await?, failed);
    let ended = restarts.ended("late").await?.status;
    assert_eq!(
        ended.as_ref().and_then(|status| status.message.as_deref()),
        Some(text)
    );
    assert_eq!(restarts.counts("app").await?, (0, 0), "the hook still runs");
    hooks.answer();
    wait_for(
        "what had begun to be carried through",
        A_MINUTE,
        async || match restarts.counts("app").await? {
            (1, 0) => Ok(Seen::Done(())),
            other => not_yet(format!("{other:?}")),
        },
    )
    .await?;
    restarts.ready("app").await?;
    // The agent does this only after what it has of the first.
    restarts.ask("next", "app", &["main"], json!({})).await?;
    assert_eq!(restarts.outcome("next").await?, succeeded(1));
    assert_eq!(restarts.counts("app").await?, (2, 0));
    assert_eq!(
        restarts.requests.get("late").await?.status,
        ended,
        "nothing changes after the end"
    );
    product.leave().await
}

#[tokio::test]
async fn an_edit_of_annotations_and_labels_restarts_nothing() -> Result<()> {
    let (product, restarts) = one_pod().await?;
    let edit = json!({"metadata": {
        "labels": {"zone": "b"},
        "annotations": {"app.kubernetes.io/config": "2", "apps.kruise.io/runtime-containers-meta": r#"{"containers":[]}"#},
    }});
    restarts
        .pods
        .patch("app", &PatchParams::default(), &Patch::Merge(edit))
        .await?;
    // Whatever would follow from the edit would have begun before this.
    restarts.ask("after", "app", &["side"], json!({})).await?;
    assert_eq!(restarts.outcome("after").await?, succeeded(1));
    assert_eq!(restarts.counts("app").await?, (0, 1));
    product.leave().await
}

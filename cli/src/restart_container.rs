//! `kruisectl restart-container`: one container of this machine, stopped, and started again by its kubelet.

use std::time::Duration;

use anyhow::{Result, bail};
use kruise_proto::convert;
use kruise_proto::node::restart_container_response::Stage;
use kruise_proto::node::{RestartContainerRequest, RestartContainerResponse};
use serde::Serialize;

use crate::args::{Format, Global, RestartArgs, ResultFormat};
use crate::connect::{self, refused_by_agent};
use crate::exit::Code;
use crate::human;
use crate::output;
use crate::tasks::seconds;

/// Restarts the container and shows each stage.
pub(crate) async fn run(global: &Global, args: RestartArgs) -> Result<Code> {
    let mut client = connect::node(connect::only_here(global)?).await?;
    let request = RestartContainerRequest {
        container_id: args.container,
        grace_period: args.grace_period.map(convert::to_duration),
        start_timeout: args.start_timeout.map(convert::to_duration),
    };
    let mut stages = client
        .restart_container(request)
        .await
        .map_err(refused_by_agent)?
        .into_inner();
    let mut last = None;
    loop {
        let stage = tokio::select! {
            stage = stages.message() => stage,
            _ = tokio::signal::ctrl_c() => {
                eprintln!("no longer watched; a stop that has begun is carried through");
                return Ok(Code::Interrupted);
            }
        };
        match stage {
            Ok(Some(stage)) => {
                eprintln!("{}", line(&stage));
                last = Some(stage);
            }
            Ok(None) => break,
            Err(status) if status.code() == tonic::Code::DeadlineExceeded => {
                eprintln!("{}", status.message());
                return Ok(Code::TimedOut);
            }
            Err(status) => return Err(refused_by_agent(status)),
        }
    }
    let Some(done) = last.filter(|last| last.stage() == Stage::Started) else {
        bail!("the agent said no more before the container had started");
    };
    match args.output {
        ResultFormat::Text => output::put(&format!("{}\n", done.new_container_id))?,
        ResultFormat::Json => output::put(&output::document(&Restarted::from(done), Format::Json)?)?,
    }
    Ok(Code::Success)
}

fn line(stage: &RestartContainerResponse) -> String {
    let time = |time: &Option<prost_types::Duration>| {
        let time = seconds(time.as_ref()).unwrap_or_default();
        // Tenths tell something here, other than in a listing.
        if time < Duration::from_secs(60) {
            format!("{:.1}s", time.as_secs_f64())
        } else {
            human::duration(time)
        }
    };
    match stage.stage() {
        Stage::Stopping => format!(
            "stopping {} of pod {}, killed after {}",
            stage.container,
            stage.pod,
            time(&stage.grace_period)
        ),
        Stage::Stopped => format!(
            "stopped after {}, exit code {}; the kubelet starts it again",
            time(&stage.stop_time),
            stage.exit_code
        ),
        Stage::Started => format!("started, it was down for {}", time(&stage.down_time)),
        Stage::Unspecified => "a stage that this program does not know".to_owned(),
    }
}

/// What happened, as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Restarted {
    pod: String,
    container: String,
    old_container_id: String,
    new_container_id: String,
    exit_code: i32,
    grace_period_seconds: f64,
    stop_seconds: f64,
    down_seconds: f64,
}

impl From<RestartContainerResponse> for Restarted {
    fn from(done: RestartContainerResponse) -> Self {
        let time =
            |time: &Option<prost_types::Duration>| seconds(time.as_ref()).unwrap_or_default().as_secs_f64();
        Self {
            grace_period_seconds: time(&done.grace_period),
            stop_seconds: time(&done.stop_time),
            down_seconds: time(&done.down_time),
            pod: done.pod,
            container: done.container,
            old_container_id: done.container_id,
            new_container_id: done.new_container_id,
            exit_code: done.exit_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_its_line() {
        let time = |millis| Some(convert::to_duration(Duration::from_millis(millis)));
        let mut stage = RestartContainerResponse {
            stage: Stage::Stopping.into(),
            container: "web".into(),
            pod: "default/web-0".into(),
            grace_period: time(30_000),
            stop_time: time(1_240),
            down_time: time(75_000),
            exit_code: 137,
            ..Default::default()
        };
        assert_eq!(
            line(&stage),
            "stopping web of pod default/web-0, killed after 30.0s"
        );
        stage.set_stage(Stage::Stopped);
        assert_eq!(
            line(&stage),
            "stopped after 1.2s, exit code 137; the kubelet starts it again"
        );
        stage.set_stage(Stage::Started);
        assert_eq!(line(&stage), "started, it was down for 1m15s");
    }
}

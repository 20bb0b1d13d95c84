//! `kruisectl agents`.

mod row;

use anyhow::Result;
use kruise_proto::{inspect, node};

pub(crate) use self::row::state;
use self::row::{AgentRow, NodeAgent};
use crate::args::{AgentsArgs, Format, Global};
use crate::connect::{self, Cluster, Inspect};
use crate::exit::{Code, Usage};
use crate::output;
use crate::tasks::{TaskRow, present, refused};

/// Lists agents, or shows one.
pub(crate) async fn run(global: &Global, args: AgentsArgs) -> Result<Code> {
    if let Some(socket) = &global.socket {
        if args.node.is_some() {
            return Err(Usage(
                "the agent behind --socket is that of this machine; leave the node's name out".into(),
            )
            .into());
        }
        let mut client = connect::node(socket).await?;
        let agent = client
            .get_agent(node::GetAgentRequest {})
            .await
            .map_err(connect::refused_by_agent)?
            .into_inner();
        let agent = NodeAgent::from(agent);
        match args.output {
            Format::Table | Format::Wide => output::put(&agent.text())?,
            Format::Json | Format::Yaml => output::put(&output::document(&agent, args.output)?)?,
        }
        return Ok(Code::Success);
    }
    let cluster = Cluster::new(global).await?;
    let client = connect::open(&cluster).await?;
    match &args.node {
        Some(node) => one(client, node, args.output).await,
        None => all(client, args.output).await,
    }
}

async fn all(mut client: Inspect, format: Format) -> Result<Code> {
    let mut rows = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = inspect::ListAgentsRequest {
            page_size: 0,
            page_token,
        };
        let page = client.list_agents(request).await.map_err(refused)?.into_inner();
        rows.extend(page.agents.into_iter().map(AgentRow::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            if format == Format::Wide {
                eprintln!("leader: {} (epoch {})", page.leader, page.epoch);
            }
            break;
        }
    }
    output::put(&output::listing(&rows, format)?)?;
    Ok(Code::Success)
}

async fn one(mut client: Inspect, node: &str, format: Format) -> Result<Code> {
    let request = inspect::GetAgentRequest {
        node_name: node.to_owned(),
    };
    let answer = client.get_agent(request).await.map_err(refused)?.into_inner();
    let agent = AgentRow::from(present(answer.agent, "the agent")?);
    let tasks: Vec<_> = answer.tasks.into_iter().map(TaskRow::from).collect();
    match format {
        Format::Table | Format::Wide => {
            output::put(&agent.text())?;
            if !tasks.is_empty() {
                output::put(&format!("\n{}", output::listing(&tasks, format)?))?;
            }
        }
        Format::Json | Format::Yaml => {
            let whole = serde_json::json!({"agent": agent, "tasks": tasks});
            output::put(&output::document(&whole, format)?)?;
        }
    }
    Ok(Code::Success)
}

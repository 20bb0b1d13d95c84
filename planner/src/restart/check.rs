//! What must hold between two stored states of one request, whoever wrote them.

use kruise_api::container_recreate_request::{ContainerRecreateRequestStatus, Phase};

/// Looks at a write.
///
/// # Errors
/// The promise that it breaks.
pub fn step(
    old: Option<&ContainerRecreateRequestStatus>,
    new: &ContainerRecreateRequestStatus,
    containers: &[&str],
) -> Result<(), String> {
    if let Some(old) = old {
        if old.completion_time.is_some() && old != new {
            return Err("a request that is complete has changed".to_owned());
        }
        for before in &old.container_recreate_states {
            let after = new
                .container_recreate_states
                .iter()
                .find(|after| after.name == before.name);
            let Some(after) = after else {
                return Err(format!("{} is no longer listed", before.name));
            };
            if before.phase.is_final() && before != after {
                return Err(format!("{} was over and has changed", before.name));
            }
            if before.is_killed && !after.is_killed {
                return Err(format!("{} was stopped and is no longer", before.name));
            }
        }
        if old.phase == Phase::Recreating && new.phase == Phase::Pending {
            return Err("a request has gone back to Pending".to_owned());
        }
    }
    if (new.phase == Phase::Completed) != new.completion_time.is_some() {
        return Err("phase Completed and completionTime belong together".to_owned());
    }
    if new.phase == Phase::Completed {
        for name in containers {
            let state = new
                .container_recreate_states
                .iter()
                .find(|state| state.name == *name);
            if !state.is_some_and(|state| matches!(state.phase, Phase::Succeeded | Phase::Failed)) {
                return Err(format!("complete, but {name} has not ended"));
            }
        }
    }
    for state in &new.container_recreate_states {
        if state.phase == Phase::Succeeded && !state.message.is_empty() {
            return Err(format!("{} succeeded and says {:?}", state.name, state.message));
        }
    }
    Ok(())
}

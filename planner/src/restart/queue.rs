//! Whose turn it is: the requests of one pod run one after the other.

use kruise_api::container_recreate_request::Phase;

use super::view::RequestView;

/// Unfinished requests in the order in which they get their turn: the one that runs, then by age, then by name.
pub(super) fn line<'a, 'b>(requests: &'b [RequestView<'a>]) -> Vec<&'b RequestView<'a>> {
    let mut line: Vec<_> = requests
        .iter()
        .filter(|request| !request.is_over() && !request.is_deleting())
        .collect();
    line.sort_by_key(|request| {
        let runs = request
            .status()
            .is_some_and(|status| status.phase == Phase::Recreating);
        (
            !(runs || request.dispatched || request.facts.is_some()),
            request.created(),
            request.name().to_owned(),
        )
    });
    line
}

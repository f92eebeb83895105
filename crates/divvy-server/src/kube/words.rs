//! What is said of a pod that waits.

use divvy_core::reason::Reason;
use divvy_engine::kubernetes::objects::Condition;

/// The word by which autoscalers buy nodes: said only where a further node would help.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Why a pod waits, for its status.
pub(super) fn waits(reason: &Reason) -> Condition {
    let word = if a_node_would_help(reason) { UNSCHEDULABLE.to_owned() } else { word(reason.code()) };
    not_scheduled(&word, format!("{reason}; {}", reason.fix()))
}

/// A pod that cannot be taken at all.
pub(super) fn refused(why: &str) -> Condition {
    not_scheduled("Refused", why.to_owned())
}

/// A pod whose gang is not all there.
pub(super) fn gang_incomplete(there: usize, minimum: u32) -> Condition {
    let message = format!("{there} of the {minimum} pods that start together are there; make the others");
    not_scheduled("GangIncomplete", message)
}

fn not_scheduled(reason: &str, message: String) -> Condition {
    Condition { kind: "PodScheduled".into(), status: "False".into(), reason: reason.into(), message }
}

/// Whether the pod could start if the cluster had one more node of the right kind.
fn a_node_would_help(reason: &Reason) -> bool {
    match reason {
        Reason::NoNode
        | Reason::NoSuchModel(_)
        | Reason::NoSuchMemory(_)
        | Reason::TooManyDevices(..)
        | Reason::TooManyTasks(..)
        | Reason::TooMuchHost(..)
        | Reason::DevicesDown(_)
        | Reason::DevicesForeign(_)
        | Reason::NodesDraining(_)
        | Reason::DevicesBusy(_)
        | Reason::HostBusy(..)
        | Reason::NoIdleNode
        | Reason::NoDomain(..)
        | Reason::GangIncomplete(_)
        | Reason::NoNodeChosen(_) => true,
        Reason::NotPlanned
        | Reason::Held(_)
        | Reason::Dependency(..)
        | Reason::StartAfter(_)
        | Reason::ArrayLimit(_)
        | Reason::QueueLimit(..)
        | Reason::BeyondGuarantee(..)
        | Reason::BorrowLimit(..)
        | Reason::NotLent(..)
        | Reason::PoolDraining
        | Reason::InLine
        | Reason::Reserved(_)
        | Reason::Promised(_)
        | Reason::Unsupported(_) => false,
    }
}

/// `DV-QUEUE-LIMIT` as the API writes reasons: `QueueLimit`.
fn word(code: &str) -> String {
    let parts = code.trim_start_matches("DV-").split('-');
    let capital = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        format!("{first}{}", rest.to_lowercase())
    };
    parts.map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::amount::Resource;

    #[test]
    fn autoscalers_hear_of_pods_that_a_node_would_help_and_of_no_others() {
        assert_eq!(waits(&Reason::DevicesBusy(2)).reason, "Unschedulable");
        let quota = Reason::QueueLimit("vision".into(), Resource::Any, 8000, 1000);
        assert_eq!(waits(&quota).reason, "QueueLimit");
        assert!(waits(&quota).message.contains("vision"), "{}", waits(&quota).message);
    }
}

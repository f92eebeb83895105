//! An example of each reason, for the list of codes.

use divvy_core::amount::Resource;
use divvy_core::id::JobId;
use divvy_core::model::ask::DeviceClass;
use divvy_core::model::island::IslandLevel;
use divvy_core::model::job::DependsOn;
use divvy_core::reason::Reason;
use divvy_core::time::Time;

/// Returns one example of each reason, in the order of the enum.
pub(crate) fn examples() -> Vec<Reason> {
    let class = || DeviceClass { models: vec!["h100".into()], ..DeviceClass::default() };
    vec![
        Reason::NotPlanned,
        Reason::Held("ana".into()),
        Reason::Dependency(JobId::single(12), DependsOn::Ok),
        Reason::StartAfter(Time(0)),
        Reason::ArrayLimit(8),
        Reason::QueueLimit("vision".into(), Resource::Any, 8000, 1000),
        Reason::BeyondGuarantee("vision".into(), Resource::Any, 8000, 1000),
        Reason::BorrowLimit("vision".into(), Resource::Any, 2000, 1000),
        Reason::NotLent("vision".into(), Resource::Any, 0, 1000),
        Reason::PoolDraining,
        Reason::NoNode,
        Reason::NoSuchModel(class()),
        Reason::NoSuchMemory(DeviceClass { least_gb: Some(141), ..class() }),
        Reason::TooManyDevices(16, 8),
        Reason::TooManyTasks(9, 8),
        Reason::TooMuchHost(Resource::Cpu, 256_000, 128_000),
        Reason::DevicesDown(1),
        Reason::DevicesForeign(1),
        Reason::NodesDraining(1),
        Reason::DevicesDraining(1),
        Reason::Booked(Time(0)),
        Reason::DevicesBusy(4),
        Reason::HostBusy(Resource::Cpu, 16_000),
        Reason::GangIncomplete(4),
        Reason::NoIdleNode,
        Reason::NoDomain("rack".into(), 4, 8),
        Reason::InLine,
        Reason::Reserved(JobId::single(7)),
        Reason::Promised(2),
        Reason::Unsupported("shares of a GPU".into()),
        Reason::NoNodeChosen(4),
        Reason::NotNear("app=db".into(), "rack".into()),
        Reason::NotApart("app=web".into(), "node".into()),
        Reason::Repelled("app=trainer".into(), "node".into()),
        Reason::NoIsland(IslandLevel::Nvlink, 4, 8),
        Reason::NotSpread("rack".into(), 2, 8, 12),
        Reason::UserLimit("vision/@ana".into(), Resource::Any, 4000, 1000),
        Reason::OverBudget("vision".into(), 2_000_000, Time(0)),
        Reason::OtherNodes(None, Some("production".into())),
        Reason::NodesAbsent("production".into()),
        Reason::LentOut("vision".into(), Resource::Any),
        Reason::Scarce("vision".into(), Resource::Any),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_a_code_of_its_own_and_a_fix() {
        let examples = examples();
        let codes: std::collections::BTreeSet<_> = examples.iter().map(Reason::code).collect();
        assert_eq!(codes.len(), examples.len());
        assert!(examples.iter().all(|reason| !reason.fix().is_empty()));
    }
}

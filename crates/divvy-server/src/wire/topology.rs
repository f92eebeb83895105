//! `topology` of a job file: where tasks must lie, and where the devices of each task must lie.

use divvy_api::Problem;
use divvy_api::types::{TopologyFile, TopologyFiles};
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::island::IslandAsk;
use divvy_core::model::newer::Newer;
use divvy_core::model::topology::{INSIDE_A_NODE, Spread, TopologyAsk};

use super::incoming::bad;

/// What a job or a role says about topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// For its tasks.
    pub(super) tasks: Option<TopologyAsk>,
    /// For the devices of each task.
    pub(super) devices: Option<IslandAsk>,
}

/// Reads a topology field.
pub(super) fn said(files: Option<&TopologyFiles>, field: &str) -> Result<Said, Problem> {
    let mut said = Said::default();
    for file in files.map(TopologyFiles::levels).unwrap_or_default() {
        let TopologyFile { within, required } = file;
        let is_second = match within.parse() {
            Ok(level) => said.devices.replace(IslandAsk { level, required: *required }).is_some(),
            Err(_) if INSIDE_A_NODE.contains(&within.as_str()) => {
                return Err(bad(
                    format!("{field}.within"),
                    format!("{within:?} is no level that several GPUs share"),
                )
                .with_fix("write nvlink or numa for the GPUs of each task, node or a level of the pool for its tasks"));
            }
            Err(_) => said.tasks.replace(TopologyAsk::within(within, *required)).is_some(),
        };
        if is_second {
            return Err(bad(field, format!("{within:?} is the second level of its kind")).with_fix(
                "name one level for the tasks and one (nvlink, numa) for the GPUs of each, at most",
            ));
        }
    }
    Ok(said)
}

/// Builds the gang: what the job says about its tasks holds for all its roles together.
pub(super) fn gang(mut roles: Vec<Role>, together: Option<TopologyAsk>, spread: Newer<Spread>) -> Group {
    match (roles.len(), roles.pop()) {
        (1, Some(mut only)) => {
            only.topology = only.topology.or(together);
            only.spread = Newer(only.spread.0.or(spread.0));
            Group::Role(only)
        }
        (count, last) => {
            roles.extend(last);
            let minimum = u32::try_from(count).unwrap_or(u32::MAX);
            let groups = roles.into_iter().map(Group::Role).collect();
            Group::Branch(Branch { name: "job".into(), minimum, groups, topology: together, spread })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::island::IslandLevel;

    fn read(json: serde_json::Value) -> Result<Said, Problem> {
        said(Some(&serde_json::from_value(json).unwrap()), "topology")
    }

    #[test]
    fn a_level_within_a_node_is_for_the_devices_of_each_task_and_others_for_its_tasks() {
        let nvlink = Some(IslandAsk { level: IslandLevel::Nvlink, required: true });
        let alone = read(serde_json::json!({"within": "nvlink", "required": true})).unwrap();
        assert_eq!(alone, Said { tasks: None, devices: nvlink });
        let both =
            read(serde_json::json!([{"within": "rack"}, {"within": "nvlink", "required": true}])).unwrap();
        assert_eq!(both, Said { tasks: Some(TopologyAsk::within("rack", false)), devices: nvlink });
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_field() {
        for (json, field) in [
            (serde_json::json!({"within": "device"}), "topology.within"),
            (serde_json::json!([{"within": "nvlink"}, {"within": "numa"}]), "topology"),
            (serde_json::json!([{"within": "rack"}, {"within": "zone"}]), "topology"),
        ] {
            assert_eq!(read(json).unwrap_err().field.as_deref(), Some(field));
        }
        let unknown = serde_json::json!({"within": "rack", "require": true});
        assert!(
            serde_json::from_value::<TopologyFiles>(unknown).unwrap_err().to_string().contains("require")
        );
    }
}

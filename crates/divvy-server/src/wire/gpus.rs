//! `gpus: h100:2`, `gpus: [h100:2, l4:4]`: the devices of a task, in one or several ways, the preferred first.

use divvy_api::{Gpus, JobFile, Problem, RoleFile, Scalar};
use divvy_core::amount::{Bandwidth, MemorySize};
use divvy_core::model::ask::{DeviceAsk, DeviceText, DrawAsk};
use divvy_core::model::newer::Newer;
use divvy_core::model::ways::{DeviceWays, unlike};

use super::incoming::{bad, parsed};

/// What each device must have at least, in every way.
#[derive(Default)]
pub(super) struct Least {
    /// `gpu_memory`: as the driver reports it.
    pub(super) memory: Option<Scalar>,
    /// `gpu_bandwidth`: of its memory.
    pub(super) bandwidth: Option<Scalar>,
}

impl Least {
    /// Returns the role's values, else the job's. The job's values do not apply to a role without GPUs.
    pub(super) fn of(job: &JobFile, role: &RoleFile, gpus: Option<&Gpus>) -> Self {
        let of_job = |said: &Option<Scalar>| {
            said.clone().filter(|_| job.roles.is_empty() || gpus.is_some_and(|gpus| !is_none(gpus)))
        };
        Self {
            memory: role.gpu_memory.clone().or_else(|| of_job(&job.gpu_memory)),
            bandwidth: role.gpu_bandwidth.clone().or_else(|| of_job(&job.gpu_bandwidth)),
        }
    }
}

/// Returns whether it asks for no GPUs.
fn is_none(gpus: &Gpus) -> bool {
    matches!(gpus, Gpus::One(text) if text.as_str() == "0")
}

/// Returns each way to serve a task; none where no devices are asked for.
pub(super) fn ways(gpus: Option<&Gpus>, least: &Least, prefix: &str) -> Result<Vec<DeviceAsk>, Problem> {
    let Some(gpus) = gpus.filter(|gpus| !is_none(gpus)) else {
        let (field, what) = match least {
            Least { memory: Some(_), .. } => ("gpu_memory", "memory"),
            Least { bandwidth: Some(_), .. } => ("gpu_bandwidth", "bandwidth"),
            Least { memory: None, bandwidth: None } => return Ok(Vec::new()),
        };
        let detail = format!("it is the {what} of each GPU, and no GPU is asked for");
        return Err(bad(format!("{prefix}{field}"), detail).with_fix("say how many: -g 1"));
    };
    let field = format!("{prefix}gpus");
    let mut texts = match gpus {
        Gpus::One(text) => parsed::<DeviceWays>(&field, text)?.0,
        Gpus::Ways(ways) => listed(&field, ways)?,
    };
    for model in texts.iter_mut().flat_map(|text| &mut text.class.models) {
        *model = divvy_gpu::catalogue::key(model);
    }
    // Two names may mean one model.
    unlike(&texts).map_err(|error| bad(field, error))?;
    let memory = least.memory.as_ref().map(|text| parsed::<MemorySize>(&format!("{prefix}gpu_memory"), text));
    let memory_mib =
        memory.transpose()?.map(|MemorySize(bytes)| u64::try_from(bytes).unwrap_or(0).div_ceil(1 << 20));
    let bandwidth = least.bandwidth.as_ref();
    let bandwidth = bandwidth.map(|text| parsed::<Bandwidth>(&format!("{prefix}gpu_bandwidth"), text));
    let least_gb_s = Newer(bandwidth.transpose()?.map(|Bandwidth(gb_s)| gb_s));
    let ask = |DeviceText { mut class, count }| {
        class.least_memory_mib = memory_mib;
        class.least_gb_s = least_gb_s;
        DeviceAsk::of(class, count, DrawAsk::Whole)
    };
    Ok(texts.into_iter().map(ask).collect())
}

fn listed(field: &str, ways: &[Scalar]) -> Result<Vec<DeviceText>, Problem> {
    if ways.is_empty() {
        return Err(bad(field, "the list names no GPUs").with_fix("name some: [h100:2, l4:4]"));
    }
    ways.iter().enumerate().map(|(at, way)| parsed(&format!("{field}[{at}]"), way)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(gpus: serde_json::Value) -> Result<Vec<String>, (String, String)> {
        let gpus: Gpus = serde_json::from_value(gpus).unwrap();
        let ways = ways(Some(&gpus), &Least::default(), "")
            .map_err(|it| (it.field.unwrap_or_default(), it.detail))?;
        Ok(ways.iter().map(|ask| format!("{}:{}", ask.class, ask.count)).collect())
    }

    #[test]
    fn a_list_and_a_text_name_ways_in_order_each_with_its_count() {
        let both = ["h100:2".to_owned(), "l4:4".to_owned()];
        assert_eq!(read(serde_json::json!(["h100:2", "L4:4"])).unwrap(), both);
        assert_eq!(read(serde_json::json!("h100:2,l4:4")).unwrap(), both);
        assert_eq!(read(serde_json::json!(["h100", "a100,l4:4"])).unwrap(), ["h100:1", "a100,l4:4"]);
        assert_eq!(read(serde_json::json!([2])).unwrap(), ["any GPU:2"]);
        assert_eq!(read(serde_json::json!(0)).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_with_a_list_is_told_with_its_place() {
        for (gpus, field, what) in [
            (serde_json::json!(["h100:2", "l4:0"]), "gpus[1]", "0 GPUs"),
            (serde_json::json!(["h100:2", 0.5]), "gpus[1]", "out of place"),
            (serde_json::json!(["h100:2", "l4:1,a100:2"]), "gpus[1]", "out of place"),
            (serde_json::json!(["h100:2", 4]), "gpus", "the same GPUs"),
            (serde_json::json!(["h100:2", "l4:4", "H100:1"]), "gpus", "the same GPUs"),
            (serde_json::json!("h100:2,l4:0"), "gpus", "0 GPUs"),
            (serde_json::json!([]), "gpus", "no GPUs"),
            (serde_json::json!((0..17).map(|at| format!("m{at}:1")).collect::<Vec<_>>()), "gpus", "17 ways"),
        ] {
            let (at, told) = read(gpus.clone()).unwrap_err();
            assert!(at == field && told.contains(what), "{gpus}: {at}: {told}");
        }
    }
}

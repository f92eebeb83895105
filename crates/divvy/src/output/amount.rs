//! Amounts as people read them.

/// Thousandths of devices: `4`, `0.5`.
pub(crate) fn gpus(milli: u64) -> String {
    thousandths(i64::try_from(milli).unwrap_or(i64::MAX))
}

/// Milli-cores: `16`, `0.5`.
pub(crate) fn cores(milli: i64) -> String {
    thousandths(milli)
}

fn thousandths(milli: i64) -> String {
    let fraction = format!("{:03}", milli.unsigned_abs() % 1000);
    match fraction.trim_end_matches('0') {
        "" => (milli / 1000).to_string(),
        fraction => format!("{}.{fraction}", milli / 1000),
    }
}

/// `1 job`, `2 jobs`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Bytes in the largest binary unit that keeps three digits: `64Gi`, `1.5Gi`.
pub(crate) fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut unit = 0;
    let mut scaled = bytes as f64;
    while scaled.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = if scaled.fract().abs() < 0.05 || scaled.abs() >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$}{}", UNITS[unit])
}

/// MiB, written as bytes are.
pub(crate) fn mib(mib: u64) -> String {
    bytes(i64::try_from(mib).unwrap_or(i64::MAX >> 20).saturating_mul(1 << 20))
}

/// Used of total memory, in GiB: `12/80Gi`; `-/80Gi` where the use is not known.
pub(crate) fn memory_pair(used_mib: Option<u64>, all_mib: u64) -> String {
    let gib = |mib: u64| (mib + 512) / 1024;
    match used_mib {
        Some(used) => format!("{}/{}Gi", gib(used), gib(all_mib)),
        None => format!("-/{}Gi", gib(all_mib)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_exact_where_they_are_whole() {
        assert_eq!([count(1, "job"), count(2usize, "job")], ["1 job", "2 jobs"]);
        assert_eq!([gpus(4000), gpus(500), gpus(1250)], ["4", "0.5", "1.25"]);
        assert_eq!([bytes(0), bytes(64 << 30), bytes(3 << 29), bytes(1000)], ["0", "64Gi", "1.5Gi", "1000"]);
        assert_eq!([mib(40_960), memory_pair(Some(12_288), 81_559)], ["40Gi".to_owned(), "12/80Gi".into()]);
        assert_eq!(memory_pair(None, 24_576), "-/24Gi");
    }
}

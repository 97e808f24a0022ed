//! What this process uses of the machine.

/// Processor time of this process, in user and in kernel mode; zero where the system does not tell.
pub(super) fn processor_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything; there the two are the 12th and 13th. A tick is 10 ms on all platforms that
    // have this file and that we build for.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut seconds = || fields.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    (seconds(), seconds())
}

/// The most memory that this process had resident, bytes; 0 where the system does not tell.
pub(super) fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Resident memory of this process, bytes; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    /// Linux counts in pages; all platforms that have this file and that we build for use these.
    const PAGE: u64 = 4096;
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}

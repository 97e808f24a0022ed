//! Large arrays that are read and written all over, in pages as large as the system has.
//!
//! Where a sample's features lie nobody chooses, so nearly every one of them is in another page; of small pages there are
//! more than a processor knows the places of, and looking one up takes it as long as reading the number itself. Linux gives
//! pages of two megabytes to those that ask, and clears them faster.

/// Arrays below this are left as they are: too small to be worth pages that they do not fill.
const WORTH_ASKING: usize = 4 << 20;

/// So many zeros (of numbers; what [`Default`] gives of other types).
pub(crate) fn zeros<T: Clone + Default>(length: usize) -> Vec<T> {
    // Not written to before it is asked for: it comes from the system as zeros.
    let zeros = vec![T::default(); length];
    ask_for_large_pages(&zeros);
    zeros
}

/// All items, in their order.
pub(crate) fn collected<T>(items: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    reserve(&mut all, items.len());
    all.extend(items);
    all
}

/// Whether the system would give so many bytes now: what is asked for beyond that ends the process. Nothing is written to.
pub fn can_hold(bytes: u64) -> bool {
    let mut probe = Vec::<u8>::new();
    let given = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    // Else the compiler may leave out memory that nobody looks at, and say that it was there.
    std::hint::black_box(&probe);
    given
}

/// Left over behind what is reserved for input: what is small is not asked for.
const SPARE: u64 = 1 << 20;

/// Whether there is the memory for another thread to begin with: its stack, and its first steps. One that is started in the last
/// memory that there is ends the process.
pub fn can_hold_thread() -> bool {
    can_hold(8 << 20)
}

/// What is done next wants more memory than there is. Found out before it begins, since a system that refuses memory in between
/// ends the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{what} wants {} of memory at a time beside the data{}, which is not there: take fewer threads, fewer samples at a time \
     (partial_fit, --batch-rows), or hash the features into fewer",
    amount(*bytes),
    limit(*limited)
)]
pub struct NoRoom {
    /// What is done.
    pub what: &'static str,
    /// What it wants at a time, with what threads take beside it.
    pub bytes: u64,
    /// Whether the system counts addresses, used or not.
    pub limited: bool,
}

impl NoRoom {
    /// Refuses what would not be there, of which so many threads are to make use.
    ///
    /// # Errors
    /// If the system would not give so many bytes.
    pub fn check(what: &'static str, bytes: u64, threads: usize) -> Result<(), NoRoom> {
        let limited = is_limited();
        let bytes = if limited { bytes.saturating_add(set_aside(bytes, threads)) } else { bytes };
        if can_hold(bytes) { Ok(()) } else { Err(NoRoom { what, bytes, limited }) }
    }
}

/// Address space that is taken beside what is asked for: by threads, each with a stack, by their heaps, of which there are as
/// many as run at the same time, and which allocations of middling size leave up to half unused.
fn set_aside(bytes: u64, threads: usize) -> u64 {
    const STACK: u64 = 2 << 20;
    const HEAP: u64 = 64 << 20;
    const ALWAYS: u64 = 16 << 20;
    const UNUSED_MAX: u64 = 512 << 20;
    let threads = if threads > 1 { threads as u64 } else { 0 };
    let at_once = std::thread::available_parallelism().map_or(1, |processors| processors.get() as u64);
    let heaps = HEAP * threads.min(at_once.max(2));
    bytes.min(UNUSED_MAX) + STACK.saturating_mul(threads) + heaps + ALWAYS
}

/// Whether addresses count that nothing lies at: of this process, or, where the system promises no more than it has, of all.
fn is_limited() -> bool {
    let all =
        || std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2");
    #[cfg(target_os = "linux")]
    let own = rustix::process::getrlimit(rustix::process::Resource::As).current.is_some();
    #[cfg(not(target_os = "linux"))]
    let own = false;
    own || all()
}

/// Why what was asked for was refused, where addresses count.
pub(crate) fn limit(limited: bool) -> &'static str {
    if limited {
        " (of addresses, of which the system lets this process have so many only: ulimit -v)"
    } else {
        ""
    }
}

pub(crate) fn amount(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Makes room for so many more.
#[inline]
pub(crate) fn reserve<T>(array: &mut Vec<T>, more: usize) {
    if array.capacity() - array.len() < more {
        array.reserve(more);
        ask_for_large_pages(array);
    }
}

/// The same of what is read or kept of input, as much as there may be.
///
/// # Errors
/// If the system would not give it, and a little more for what goes with it.
#[inline]
pub(crate) fn try_reserve<T>(array: &mut Vec<T>, more: usize) -> Result<(), NoRoom> {
    if array.capacity() - array.len() < more { grow(array, more) } else { Ok(()) }
}

#[cold]
fn grow<T>(array: &mut Vec<T>, more: usize) -> Result<(), NoRoom> {
    if array.try_reserve(more).is_err() || !can_hold(SPARE) {
        let all = array.len().saturating_add(more).max(2 * array.len());
        let bytes = all.saturating_mul(size_of::<T>()) as u64;
        return Err(NoRoom { what: "reading", bytes, limited: is_limited() });
    }
    ask_for_large_pages(array);
    Ok(())
}

/// Has room for so many in all, if the system would give that much: for a guess, which costs nothing where it is too high, as
/// memory that is not written to is not there.
pub(crate) fn expect<T>(array: &mut Vec<T>, all: usize) {
    if array.try_reserve_exact(all.saturating_sub(array.len())).is_ok() {
        ask_for_large_pages(array);
    }
}

/// Changes nothing but speed.
fn ask_for_large_pages<T>(array: &Vec<T>) {
    let bytes = array.capacity() * size_of::<T>();
    if bytes < WORTH_ASKING {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let page = rustix::param::page_size();
        let start = array.as_ptr() as usize / page * page;
        let end = (array.as_ptr() as usize + bytes).next_multiple_of(page);
        // SAFETY: the advice leaves the contents of memory as they are, whoever has it; and the pages are there, since each has
        // at least a byte of the array.
        #[allow(unsafe_code)]
        let asked =
            unsafe { rustix::mm::madvise(start as *mut _, end - start, rustix::mm::Advice::LinuxHugepage) };
        // A system without such pages says no.
        let _ = asked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_system_has_cannot_be_held() {
        assert!(can_hold(0) && can_hold(1 << 20));
        assert!(!can_hold(1 << 60) && !can_hold(u64::MAX));
    }

    #[test]
    fn what_there_is_no_room_for_is_said_with_its_size() {
        assert_eq!(NoRoom::check("learning", 1 << 20, 2), Ok(()));
        let told = NoRoom::check("learning", 1 << 60, 2).unwrap_err().to_string();
        assert!(
            told.starts_with("learning wants 1073741824.0 GiB of memory at a time beside the data,"),
            "{told}"
        );
        assert_eq!([amount(1), amount((1 << 30) - 1), amount(3 << 29)], ["1 MiB", "1024 MiB", "1.5 GiB"]);
    }

    #[test]
    fn room_that_there_is_not_leaves_an_array_as_it_was() {
        let mut array = vec![1_u64, 2];
        let refused = try_reserve(&mut array, 1 << 57).unwrap_err();
        assert_eq!((refused.bytes, &array[..]), ((1 << 60) + 16, &[1, 2][..]));
    }

    #[test]
    fn arrays_hold_what_was_asked_for_whatever_their_size() {
        for length in [0, 1, 1000, WORTH_ASKING / 4 + 1, 3 * WORTH_ASKING / 4 + 5] {
            assert!(zeros::<u32>(length).iter().all(|&number| number == 0));
            let mut counted = collected(0..length as u32);
            reserve(&mut counted, 2 * length + 1);
            assert!(counted.capacity() > 3 * length);
            try_reserve(&mut counted, 5 * length + 1).unwrap();
            assert!(counted.capacity() > 6 * length);
            counted.push(7);
            assert!(counted.iter().take(length).enumerate().all(|(at, &number)| number == at as u32));
            assert_eq!((counted.len(), counted[length]), (length + 1, 7));
        }
    }
}

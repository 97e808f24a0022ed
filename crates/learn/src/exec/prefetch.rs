//! Asking for memory before it is needed.

/// Tells the processor that `target` will be needed soon. Changes nothing but speed.
#[inline(always)]
pub(crate) fn prefetch<P>(target: &P) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and cannot fault; the address is that of a reference.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(target).cast(),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the instruction changes neither registers nor flags nor memory.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) target, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = target;
}

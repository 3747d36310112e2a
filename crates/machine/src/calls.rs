//! The contract's calls, listed once for the machines that pass them on.

/// Gives the list to the macro that is named. Beside it stand
/// [`PhysMem::zeros`](crate::PhysMem), which is made of loads, and
/// [`Cpus::pinned`](crate::Cpus), which alone has a type for what it returns.
macro_rules! contract {
    ($macro:ident) => {
        $macro! {
            unsafe {
                PhysMem {
                    unsafe fn reach(pa: Pa, bytes: Bytes) -> NonNull<u8>;
                    unsafe fn load(pa: Pa) -> u64;
                    unsafe fn is_zero(pa: Pa, bytes: Bytes) -> bool;
                    unsafe fn store(pa: Pa, word: u64) -> ();
                    unsafe fn compare_exchange(pa: Pa, old: u64, new: u64) -> Result<u64, u64>;
                    unsafe fn clear(pa: Pa, bytes: Bytes, caching: Caching) -> ();
                    unsafe fn copy(from: Pa, to: Pa, bytes: Bytes) -> ();
                    unsafe fn write(pa: Pa, contents: &[u8]) -> ();
                    + zeros
                }
                KernelVa {
                    unsafe fn kernel_load(va: Va) -> Result<u64, KernelFault>;
                    unsafe fn kernel_store(va: Va, word: u64) -> Result<(), KernelFault>;
                    unsafe fn kernel_compare_exchange(va: Va, old: u64, new: u64) -> Result<Result<u64, u64>, KernelFault>;
                    unsafe fn kernel_fill(va: Va, stride: Bytes, count: u64, word: u64) -> Result<(), KernelFault>;
                }
            }
            safe {
                Tlb {
                    fn activate(root: Root, kept: Kept) -> ();
                    fn invalidate(what: &Invalidation) -> ();
                    fn ask(cpus: &CpuSet, what: &Invalidation) -> Ticket;
                    fn wait(ticket: Ticket) -> ();
                    fn rules() -> MmuRules;
                }
                Cpus {
                    fn me() -> Cpu;
                    fn count() -> usize;
                    fn relax() -> ();
                    fn add_own(word: &AtomicU64, by: u64) -> ();
                    + pinned
                }
                Clock {
                    fn now() -> Nanos;
                    fn yield_now() -> ();
                }
                Witness {
                    fn owned(frames: FrameRange, owner: Owner) -> ();
                    fn refusal() -> Refusal;
                    fn retired(range: VaRange, how: Retired) -> ();
                }
            }
        }
    };
}
pub(crate) use contract;

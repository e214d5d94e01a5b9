//! The system calls that steps have no business with, refused by a seccomp filter.
//!
//! Everything else is allowed.
//! The filter closes doors behind which kernels have had holes, and those through which a program
//! could escape from the rest of the isolation.
//! A program of another instruction set (32-bit on a 64-bit kernel) is killed.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Refused with EPERM, whatever the arguments.
const REFUSED: [libc::c_long; 47] = [
    // Mounts, and other roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes' memory and files.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Files by number, past all directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The kernel's keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Programs and buffers in the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_lookup_dcookie,
    // The machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
];

/// As if the kernel did not know them, so that programs take the older way.
/// `clone3` hides its flags from the filter, and the memory of a file without a name belongs to no
/// process.
const UNKNOWN: [libc::c_long; 3] = [libc::SYS_clone3, libc::SYS_memfd_create, libc::SYS_memfd_secret];

/// Flags of `clone` that make a new namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The kinds of sockets that exist without and with the network.
const LOCAL: [libc::c_int; 1] = [libc::AF_UNIX];
const NETWORK: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// What x86-64 adds to a number for the same call with 32-bit pointers.
const X32: libc::c_long = 0x4000_0000;

/// Refuses the calls to this thread and all that it starts, for good.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn refuse(network: bool) -> Result<(), Error> {
    for filter in filters(network)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

fn filters(network: bool) -> Result<[BpfProgram; 2], Error> {
    let argument = |index, operator, value: libc::c_int| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value as u64)
    };
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.map(|call| (call, Vec::new())).into();
    let flag =
        |flag: libc::c_int| SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag as u64), flag)?]);
    refused.insert(libc::SYS_clone, NAMESPACES.into_iter().map(flag).collect::<Result<_, _>>()?);
    let families: &[libc::c_int] = if network { &NETWORK } else { &LOCAL };
    let none_of = families.iter().map(|family| argument(0, SeccompCmpOp::Ne, *family));
    refused.insert(libc::SYS_socket, vec![SeccompRule::new(none_of.collect::<Result<_, _>>()?)?]);
    let unknown = UNKNOWN.map(|call| (call, Vec::new())).into();
    Ok([filter(refused, libc::EPERM)?, filter(unknown, libc::ENOSYS)?])
}

fn filter(calls: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int) -> Result<BpfProgram, Error> {
    let mut rules = calls.clone();
    if cfg!(target_arch = "x86_64") {
        rules.extend(calls.into_iter().map(|(call, rule)| (call | X32, rule)));
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), architecture)?;
    Ok(filter.try_into()?)
}

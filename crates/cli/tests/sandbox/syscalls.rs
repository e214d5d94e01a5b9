//! System calls that are refused, and those with lasting effects.

use super::{Policy, SandboxDir, needs, text};

#[test]
fn system_calls_that_steps_have_no_business_with_fail() {
    let Some(_) = needs("system_calls_that_steps_have_no_business_with_fail", |found| found.seccomp) else {
        return;
    };
    let dir = SandboxDir::new(Policy::default());
    let call = |name: &str, number: i64, arguments: &str, error: &str| {
        let code = format!(
            "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
             r = libc.syscall({number}, {arguments})\n\
             print(r if r >= 0 else errno.errorcode[ctypes.get_errno()])"
        );
        let output = dir.run(&["python3", "-c", &code], false);
        assert_eq!(text(&output.stdout), error, "{name} gave {output:?}");
    };
    let zeros = "0, 0, 0, 0, 0";
    for (name, number) in [
        ("mount", nix::libc::SYS_mount),
        ("umount2", nix::libc::SYS_umount2),
        ("fsopen", nix::libc::SYS_fsopen),
        ("move_mount", nix::libc::SYS_move_mount),
        ("pivot_root", nix::libc::SYS_pivot_root),
        ("unshare", nix::libc::SYS_unshare),
        ("setns", nix::libc::SYS_setns),
        ("ptrace", nix::libc::SYS_ptrace),
        ("process_vm_readv", nix::libc::SYS_process_vm_readv),
        ("open_by_handle_at", nix::libc::SYS_open_by_handle_at),
        ("keyctl", nix::libc::SYS_keyctl),
        ("add_key", nix::libc::SYS_add_key),
        ("request_key", nix::libc::SYS_request_key),
        ("bpf", nix::libc::SYS_bpf),
        ("perf_event_open", nix::libc::SYS_perf_event_open),
        ("userfaultfd", nix::libc::SYS_userfaultfd),
        ("io_uring_setup", nix::libc::SYS_io_uring_setup),
        ("kexec_load", nix::libc::SYS_kexec_load),
        ("init_module", nix::libc::SYS_init_module),
        ("reboot", nix::libc::SYS_reboot),
        ("swapon", nix::libc::SYS_swapon),
    ] {
        call(name, number, zeros, "EPERM");
    }
    call("clone into a user namespace", nix::libc::SYS_clone, "0x10000011, 0, 0, 0, 0", "EPERM");
    call("clone3", nix::libc::SYS_clone3, zeros, "ENOSYS");
    call("openat2", nix::libc::SYS_openat2, zeros, "ENOSYS");
    call("memfd_create", nix::libc::SYS_memfd_create, zeros, "ENOSYS");
    call("getppid", nix::libc::SYS_getppid, zeros, "1");
}

/// A file left by a step must not run with anybody's rights: its owner may be the superuser.
#[test]
fn nothing_is_made_to_run_as_its_owner() {
    let Some(_) = needs("nothing_is_made_to_run_as_its_owner", |found| found.seccomp) else { return };
    let dir = SandboxDir::new(Policy::default());
    let refused = |call: &str, expected: &str| {
        let code = format!(
            "import os, sys\nos.umask(0)\nopen('f', 'w').close()\nfd = os.open('f', os.O_RDWR)\n\
             try: {call}; print('done')\nexcept OSError as e: print(e.strerror)"
        );
        assert_eq!(text(&dir.run(&["python3", "-c", &code], false).stdout), expected, "{call}");
    };
    for call in [
        "os.chmod('f', 0o4755)",
        "os.chmod('f', 0o2755)",
        "os.fchmod(fd, 0o6755)",
        "os.chmod('f', 0o4755, dir_fd=os.open('.', 0))",
        "os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)",
        "os.mknod('h', 0o4755)",
        "os.mkdir('i', 0o2755)",
    ] {
        refused(call, "Operation not permitted");
    }
    for name in ["security.capability", "user.x"] {
        refused(&format!("os.setxattr('f', '{name}', b'x')"), "Operation not supported");
    }
    for call in
        ["os.chmod('f', 0o1777)", "os.open('j', os.O_CREAT, 0o777)", "os.open('f', os.O_RDONLY, 0o4755)"]
    {
        refused(call, "done");
    }
    let modes = dir.bash("find . -perm /6000");
    assert_eq!((modes.exit, text(&modes.stdout)), (Some(0), String::new()));
}

//! Makes a supervisor small: it needs less to wait for days than it needed to start.

/// Gives back the pages of program and libraries. They come from files, so the few that are needed again come back
/// from the kernel's cache when touched.
pub(crate) fn slim() {
    // SAFETY: the callback gets what the loader has mapped; see there.
    unsafe { libc::dl_iterate_phdr(Some(give_back), std::ptr::null_mut()) };
}

unsafe extern "C" fn give_back(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _nothing: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid object with so many headers.
    let (base, headers) = unsafe {
        let object = &*object;
        if object.dlpi_phdr.is_null() {
            return 0;
        }
        (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    // Never written to. Segments that are (data, relocated or not) hold content that no file has.
    let is_constant =
        |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
    for header in headers.iter().filter(is_constant) {
        const PAGE_BYTES: u64 = 4096;
        let begin = (base + header.p_vaddr) & !(PAGE_BYTES - 1);
        // Rounded down: the last page may be shared with data that is mapped after it.
        let end = (base + header.p_vaddr + header.p_memsz) & !(PAGE_BYTES - 1);
        if begin != 0 && end > begin {
            let length = usize::try_from(end - begin).unwrap_or(0);
            // SAFETY: the range is of one read-only mapping of a file; dropping its pages loses nothing.
            unsafe { libc::madvise(begin as *mut libc::c_void, length, libc::MADV_DONTNEED) };
        }
    }
    0
}

"""The machine code of `large_blocks`, in LLVM's language.

`%State` is read and written from Python, `%DataPtr` is PyTorch's. An entry is a block: its state is changed by one
compare-and-swap, and whoever has won it alone reads or writes the rest, so nobody waits for anybody.
"""

# States of an entry: 0 empty, 1 waiting, 2 in a tensor, 3 in nobody's hands but those that are at work on it.
CODE = """
%State = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64, i64, i64 }
%Entry = type { i64, i64, i64, i64 } ; state, address, size, when it was freed
%DataPtr = type { ptr, ptr, ptr, i16 }

@state = internal global %State zeroinitializer
@entries = internal global [1024 x %Entry] zeroinitializer
@limit = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 9)
@used = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 10)
@kept = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 11)
@most = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 12)
@clock = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 13)
@spare = internal alias i64, getelementptr (%State, ptr @state, i32 0, i32 14)

; the block that has waited longest goes back to the system; 0 where none waits
define internal i32 @evict() {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %oldest = phi i64 [ -1, %entry ], [ %oldest.next, %after ]
  %since = phi i64 [ 9223372036854775807, %entry ], [ %since.next, %after ]
  %e = getelementptr [1024 x %Entry], ptr @entries, i64 0, i64 %i
  %s = load atomic i64, ptr %e acquire, align 8
  %waits = icmp eq i64 %s, 1
  %when.p = getelementptr %Entry, ptr %e, i32 0, i32 3
  %when = load atomic i64, ptr %when.p monotonic, align 8
  %older = icmp slt i64 %when, %since
  %better = and i1 %waits, %older
  br label %after
after:
  %oldest.next = select i1 %better, i64 %i, i64 %oldest
  %since.next = select i1 %better, i64 %when, i64 %since
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 1024
  br i1 %more, label %next, label %chosen
chosen:
  %some = icmp sge i64 %oldest.next, 0
  br i1 %some, label %claim, label %none
none:
  ret i32 0
claim:
  %c = getelementptr [1024 x %Entry], ptr @entries, i64 0, i64 %oldest.next
  %swap = cmpxchg ptr %c, i64 1, i64 3 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %unmap, label %done
unmap:
  %base.p = getelementptr %Entry, ptr %c, i32 0, i32 1
  %size.p = getelementptr %Entry, ptr %c, i32 0, i32 2
  %base = load atomic i64, ptr %base.p monotonic, align 8
  %size = load atomic i64, ptr %size.p monotonic, align 8
  %kept.0 = atomicrmw sub ptr @kept, i64 %size monotonic
  %munmap.p = getelementptr %State, ptr @state, i32 0, i32 4
  %munmap = load ptr, ptr %munmap.p
  %r = call i32 %munmap(i64 %base, i64 %size)
  store atomic i64 0, ptr %c release, align 8
  br label %done
done:
  ret i32 1
}

; counts bytes as in use
define internal void @take(i64 %size) {
  %before = atomicrmw add ptr @used, i64 %size monotonic
  %after = add i64 %before, %size
  %m = atomicrmw max ptr @most, i64 %after monotonic
  ret void
}

; a block of at least so many bytes; null where there is none to be had
define internal ptr @lease(i64 %n) {
entry:
  %n.up = add i64 %n, 2097151
  %size = and i64 %n.up, -2097152
  %shift = load atomic i64, ptr @spare monotonic, align 8
  %slack = lshr i64 %size, %shift
  %largest = add i64 %size, %slack
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %e = getelementptr [1024 x %Entry], ptr @entries, i64 0, i64 %i
  %base.p = getelementptr %Entry, ptr %e, i32 0, i32 1
  %size.p = getelementptr %Entry, ptr %e, i32 0, i32 2
  %s = load atomic i64, ptr %e acquire, align 8
  %waits = icmp eq i64 %s, 1
  br i1 %waits, label %claim, label %after
claim:
  %looks = load atomic i64, ptr %size.p monotonic, align 8
  %looks.enough = icmp uge i64 %looks, %size
  %looks.close = icmp ule i64 %looks, %largest
  %looks.fits = and i1 %looks.enough, %looks.close
  br i1 %looks.fits, label %swap, label %after
swap:
  %swapped = cmpxchg ptr %e, i64 1, i64 3 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %swapped, 1
  br i1 %mine, label %check, label %after
check: ; another thread may have made it another block meanwhile
  %is = load atomic i64, ptr %size.p monotonic, align 8
  %is.it = icmp eq i64 %is, %looks
  br i1 %is.it, label %found, label %put.back
put.back:
  store atomic i64 1, ptr %e release, align 8
  br label %after
found:
  %kept.0 = atomicrmw sub ptr @kept, i64 %is monotonic
  call void @take(i64 %is)
  store atomic i64 2, ptr %e release, align 8
  %found.base = load atomic i64, ptr %base.p monotonic, align 8
  %found.ptr = inttoptr i64 %found.base to ptr
  ret ptr %found.ptr
after:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 1024
  br i1 %more, label %next, label %make
make:
  call void @take(i64 %size)
  br label %bound
bound:
  %used.1 = load atomic i64, ptr @used monotonic, align 8
  %kept.1 = load atomic i64, ptr @kept monotonic, align 8
  %most.1 = load atomic i64, ptr @most monotonic, align 8
  %more.1 = lshr i64 %most.1, %shift
  %allowed = add i64 %most.1, %more.1
  %total = add i64 %used.1, %kept.1
  %too.much = icmp ugt i64 %total, %allowed
  br i1 %too.much, label %shrink, label %place.0
shrink:
  %shrunk = call i32 @evict()
  %again = icmp ne i32 %shrunk, 0
  br i1 %again, label %bound, label %place.0
place.0:
  br label %place
place:
  %j = phi i64 [ 0, %place.0 ], [ %j.next, %place.after ]
  %f = getelementptr [1024 x %Entry], ptr @entries, i64 0, i64 %j
  %g = load atomic i64, ptr %f monotonic, align 8
  %empty = icmp eq i64 %g, 0
  br i1 %empty, label %place.swap, label %place.after
place.swap:
  %placed = cmpxchg ptr %f, i64 0, i64 3 acq_rel monotonic
  %placed.mine = extractvalue { i64, i1 } %placed, 1
  br i1 %placed.mine, label %map, label %place.after
place.after:
  %j.next = add i64 %j, 1
  %place.more = icmp ult i64 %j.next, 1024
  br i1 %place.more, label %place, label %full
full:
  %used.f = atomicrmw sub ptr @used, i64 %size monotonic
  ret ptr null
map:
  %mmap.p = getelementptr %State, ptr @state, i32 0, i32 3
  %mmap = load ptr, ptr %mmap.p
  %base.new = call i64 %mmap(i64 0, i64 %size, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq i64 %base.new, -1
  br i1 %failed, label %without, label %mapped
without:
  store atomic i64 0, ptr %f release, align 8
  %used.w = atomicrmw sub ptr @used, i64 %size monotonic
  br label %give.back
give.back: ; PyTorch's own allocator is asked next, and shall find what waits here
  %given = call i32 @evict()
  %give.more = icmp ne i32 %given, 0
  br i1 %give.more, label %give.back, label %nothing
nothing:
  ret ptr null
mapped:
  %madvise.p = getelementptr %State, ptr @state, i32 0, i32 5
  %madvise = load ptr, ptr %madvise.p
  %hint = call i32 %madvise(i64 %base.new, i64 %size, i32 14)
  %f.base.p = getelementptr %Entry, ptr %f, i32 0, i32 1
  %f.size.p = getelementptr %Entry, ptr %f, i32 0, i32 2
  store atomic i64 %base.new, ptr %f.base.p monotonic, align 8
  store atomic i64 %size, ptr %f.size.p monotonic, align 8
  store atomic i64 2, ptr %f release, align 8
  %new.ptr = inttoptr i64 %base.new to ptr
  ret ptr %new.ptr
}

define internal void @allocate(ptr sret(%DataPtr) align 8 %out, ptr %this, i64 %n) {
entry:
  %limit.now = load atomic i64, ptr @limit monotonic, align 8
  %on = icmp ne i64 %limit.now, 0
  %is.large = icmp uge i64 %n, 4194304
  %ours = and i1 %on, %is.large
  br i1 %ours, label %large, label %original
large:
  %p = call ptr @lease(i64 %n)
  %got = icmp ne ptr %p, null
  br i1 %got, label %fill, label %original
fill:
  store ptr %p, ptr %out
  %delete.p = getelementptr %DataPtr, ptr %out, i32 0, i32 1
  store ptr @delete, ptr %delete.p
  %context.p = getelementptr %DataPtr, ptr %out, i32 0, i32 2
  store ptr %p, ptr %context.p
  %device.p = getelementptr %DataPtr, ptr %out, i32 0, i32 3
  store i16 -256, ptr %device.p
  %reporter.p = getelementptr %State, ptr @state, i32 0, i32 6
  %reporter = load ptr, ptr %reporter.p
  %new.p = getelementptr %State, ptr @state, i32 0, i32 7
  %new = load ptr, ptr %new.p
  call void %new(ptr %reporter, ptr %p, i64 %n)
  ret void
original:
  %allocate.f = load ptr, ptr @state
  %allocator.p = getelementptr %State, ptr @state, i32 0, i32 1
  %allocator = load ptr, ptr %allocator.p
  call void %allocate.f(ptr sret(%DataPtr) align 8 %out, ptr %allocator, i64 %n)
  ret void
}

define internal void @delete(ptr %p) {
entry:
  %address = ptrtoint ptr %p to i64
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %e = getelementptr [1024 x %Entry], ptr @entries, i64 0, i64 %i
  %base.p = getelementptr %Entry, ptr %e, i32 0, i32 1
  %s = load atomic i64, ptr %e acquire, align 8
  %base = load atomic i64, ptr %base.p monotonic, align 8
  %in.use = icmp eq i64 %s, 2
  %same = icmp eq i64 %base, %address
  %it = and i1 %in.use, %same
  br i1 %it, label %found, label %after
after:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 1024
  br i1 %more, label %next, label %small
small:
  %delete.p = getelementptr %State, ptr @state, i32 0, i32 2
  %delete.f = load ptr, ptr %delete.p
  call void %delete.f(ptr %p)
  ret void
found:
  %reporter.p = getelementptr %State, ptr @state, i32 0, i32 6
  %reporter = load ptr, ptr %reporter.p
  %gone.p = getelementptr %State, ptr @state, i32 0, i32 8
  %gone = load ptr, ptr %gone.p
  call void %gone(ptr %reporter, ptr %p)
  %size.p = getelementptr %Entry, ptr %e, i32 0, i32 2
  %size = load atomic i64, ptr %size.p monotonic, align 8
  %when.p = getelementptr %Entry, ptr %e, i32 0, i32 3
  %when = atomicrmw add ptr @clock, i64 1 monotonic
  store atomic i64 %when, ptr %when.p monotonic, align 8
  %used.0 = atomicrmw sub ptr @used, i64 %size monotonic
  %kept.0 = atomicrmw add ptr @kept, i64 %size monotonic
  store atomic i64 1, ptr %e release, align 8
  br label %bound
bound:
  %kept.1 = load atomic i64, ptr @kept monotonic, align 8
  %limit.1 = load atomic i64, ptr @limit monotonic, align 8
  %too.much = icmp sgt i64 %kept.1, %limit.1
  br i1 %too.much, label %shrink, label %done
shrink:
  %shrunk = call i32 @evict()
  %again = icmp ne i32 %shrunk, 0
  br i1 %again, label %bound, label %done
done:
  ret void
}

define internal ptr @raw_deleter(ptr %this) {
  ret ptr @delete
}
""" + "".join(
    f"""
define dllexport i32 @__tvm_ffi_gsb_blocks_{name}(ptr %self, ptr %arguments, i32 %count, ptr %result) {{
  %value = getelementptr {{ i32, i32, i64 }}, ptr %result, i32 0, i32 2
  store i32 1, ptr %result
  store i64 ptrtoint (ptr @{symbol} to i64), ptr %value
  ret i32 0
}}
"""
    for name, symbol in (
        ("state", "state"),
        ("allocate_address", "allocate"),
        ("raw_deleter_address", "raw_deleter"),
        ("evict_address", "evict"),
    )
)

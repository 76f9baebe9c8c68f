"""Small functions that the tests of this folder compile."""

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def double(n: T.int32, a_handle: T.handle, b_handle: T.handle):
    a = T.match_buffer(a_handle, (n,), "float32", align=4)
    b = T.match_buffer(b_handle, (n,), "float32", align=4)
    for i in T.parallel(n):
        with T.sblock("double"):
            vi = T.axis.spatial(n, i)
            b[vi] = a[vi] * T.float32(2)


@T.prim_func(s_tir=True)
def serial_double(n: T.int32, a_handle: T.handle, b_handle: T.handle):
    a = T.match_buffer(a_handle, (n,), "float32", align=4)
    b = T.match_buffer(b_handle, (n,), "float32", align=4)
    for i in T.serial(n):
        with T.sblock("double"):
            vi = T.axis.spatial(n, i)
            b[vi] = a[vi] * T.float32(2)


@T.prim_func(s_tir=True)
def row_sums(m: T.int32, nnz: T.int32, indptr_handle: T.handle, a_handle: T.handle, c_handle: T.handle):
    indptr = T.match_buffer(indptr_handle, (m + 1,), "int32", align=4)
    a = T.match_buffer(a_handle, (nnz,), "float64", align=8)
    c = T.match_buffer(c_handle, (m,), "float64", align=8)
    for i in T.parallel(m):
        with T.sblock("row"):
            vi = T.axis.spatial(m, i)
            T.reads(indptr[vi : vi + 2], a[0:nnz])
            T.writes(c[vi])
            c[vi] = T.float64(0)
            for j in T.serial(indptr[vi + 1] - indptr[vi]):
                c[vi] = c[vi] + a[indptr[vi] + j]


@T.prim_func(s_tir=True)
def positive_to_one(n: T.int32, a_handle: T.handle):
    a = T.match_buffer(a_handle, (n,), "float32", align=4)
    for i in T.parallel(n):
        with T.sblock("check"):
            vi = T.axis.spatial(n, i)
            assert a[vi] > T.float32(0), "entry is not positive"
            a[vi] = T.float32(1)


@T.prim_func(s_tir=True)
def record_thread(n: T.int32, microseconds_handle: T.handle, threads_handle: T.handle):
    """Who runs each of the n iterations, each of which sleeps for some time."""
    microseconds = T.match_buffer(microseconds_handle, (n,), "int32", align=4)
    threads = T.match_buffer(threads_handle, (n,), "int64", align=8)
    for i in T.parallel(n):
        with T.sblock("thread"):
            vi = T.axis.spatial(n, i)
            T.evaluate(T.call_extern("int32", "usleep", microseconds[vi]))
            threads[vi] = T.call_extern("int64", "pthread_self")


@T.prim_func(s_tir=True)
def exp_third_cuda(n: T.int32, a_handle: T.handle, b_handle: T.handle):
    a = T.match_buffer(a_handle, (n,), "float32", align=4)
    b = T.match_buffer(b_handle, (n,), "float32", align=4)
    for bx in T.thread_binding((n + 127) // 128, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.sblock("exp"):
                vi = T.axis.spatial(n, bx * 128 + tx)
                T.where(bx * 128 + tx < n)
                b[vi] = T.exp(a[vi]) / T.float32(3)

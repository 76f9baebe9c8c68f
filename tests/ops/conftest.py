"""With GSB_SERIAL_GPU=1 all operators take the way to a GPU, and its kernels run serially on the CPU (`serial_gpu`)."""
from tests.ops.serial_gpu import everything_on_the_serial_gpu, serial_gpu  # noqa: F401

"""What counts as what."""

import pytest

from pytest_aorta.trace.kinds import Category, Kind, direction_of, kind_of


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        (Category.KERNEL, "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", Kind.COMMUNICATION),
        (Category.KERNEL, "RCCL_AllReduce", Kind.COMMUNICATION),
        (Category.KERNEL, "void cross_device_reduce_1stage<c10::Half, 8>", Kind.COMMUNICATION),
        (Category.KERNEL, "Cijk_Ailk_Bljk_BBS_BH_MT256", Kind.COMPUTE),
        (Category.KERNEL, "__amd_rocclr_copyBufferRectAligned.kd", Kind.COPY),
        (Category.KERNEL, "MEMORY_COPY_DEVICE_TO_HOST", Kind.COPY),
        (Category.KERNEL, "my__amd_rocclr_copyBuffer", Kind.COMPUTE),
        (Category.COPY, "Memcpy DtoD (Device -> Device)", Kind.COPY),
        (Category.COPY, "nccl", Kind.COPY),
        (Category.SET, "Memset (Device)", Kind.SET),
    ],
)
def test_kind_of_a_gpu_event(category: Category, name: str, kind: Kind) -> None:
    assert kind_of(category, name) is kind


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "HtoD"),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("MEMORY_COPY_DEVICE_TO_DEVICE", "DtoD"),
        ("__amd_rocclr_copyBuffer", "other"),
    ],
)
def test_direction_of_a_copy(name: str, direction: str) -> None:
    assert direction_of(name) == direction

"""The folders at the root are the package `mixts`: each is found with all the folders below it."""

from setuptools import find_namespace_packages, setup

ROOTS = ("models", "inference", "bandit", "benchmarks")

setup(
    packages=[
        f"mixts.{name}"
        for name in find_namespace_packages(
            include=[pattern for root in ROOTS for pattern in (root, f"{root}.*")],
            exclude=["*.__pycache__"],
        )
    ],
    package_dir={f"mixts.{root}": root for root in ROOTS},
)

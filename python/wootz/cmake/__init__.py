"""The CMake package: `find_package(wootz)` finds it here, `python -m wootz --cmakedir` says where it is."""

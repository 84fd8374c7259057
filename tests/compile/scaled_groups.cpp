// Follows the text of a grouped kernel's stub, with symbol `grouped`: what the kernel before the main one
// writes.
WOOTZ_EXPORT int64_t describe_groups(const int32_t* counts, const int32_t* offsets, const int64_t* sizes,
                                     char* workspace, int64_t* found) {
    using All = wootz::Groups<wootz::of_grouped::Gemm>;
    const char* codes = reinterpret_cast<const char*>(int64_t(1) << 40);
    const char* tiles = reinterpret_cast<const char*>(int64_t(2) << 40);
    const char* bank = reinterpret_cast<const char*>(int64_t(3) << 40);
    const char* bank_tiles = reinterpret_cast<const char*>(int64_t(4) << 40);
    char* y = reinterpret_cast<char*>(int64_t(5) << 40);
    int groups = int(sizes[1]);
    const float x_scale = 3, w_scale[8] = {5, 7, 11, 13, 17, 19, 23, 29};
    wootz::GroupInputs in{codes,   tiles, &x_scale,      bank,   bank_tiles,    w_scale,       counts,
                          offsets, y,     int(sizes[0]), groups, int(sizes[2]), int(sizes[3]), 0.5f};
    All all{workspace, groups};
    for (int g = 0; g < groups; ++g) {
        wootz::describe_group<wootz::of_grouped::Gemm>(in, workspace, g);
        auto shape = all.shapes()[g];
        auto address = [](auto* pointer) { return int64_t(reinterpret_cast<uintptr_t>(pointer)); };
        int64_t row[] = {cute::get<0>(shape),
                         cute::get<1>(shape),
                         cute::get<2>(shape),
                         address(all.a()[g]),
                         address(all.scales_a()[g]),
                         address(all.b()[g]),
                         address(all.scales_b()[g]),
                         address(all.d()[g]),
                         int64_t(cute::get<0>(all.stride_a()[g])),
                         int64_t(cute::get<0>(all.stride_b()[g])),
                         int64_t(cute::get<0>(all.stride_d()[g])),
                         int64_t(cute::cosize(all.tiles_a()[g])),
                         int64_t(cute::cosize(all.tiles_b()[g])),
                         int64_t(2 * all.numbers()[g])};
        std::memcpy(found + g * 14, row, sizeof row);
    }
    return int64_t(All::bytes(groups));
}

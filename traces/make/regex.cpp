// Templates of the standard library, for the compiler.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

int main() {
    std::regex r("a(b|c)*d");
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 1000; i++)
        m[std::to_string(i % 37)].push_back(i);
    std::unordered_map<int, std::function<int(int)>> f;
    f[1] = [](int x) { return x + 1; };
    std::cout << m.size() << std::regex_match("abcd", r) << f[1](2);
}

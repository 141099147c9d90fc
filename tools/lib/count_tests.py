"""Prints `passed failed skipped` of a ctest JUnit file on stdout, and names what did not pass on stderr.

    python3 count_tests.py RESULTS.xml
"""
import sys
import xml.etree.ElementTree as tree


def main():
    passed, failed, skipped = 0, [], []
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status == "fail" or case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif status in ("notrun", "disabled") or case.find("skipped") is not None:
            note = case.find("skipped")
            skipped.append((name, (note.get("message") if note is not None else "") or status))
        else:
            passed += 1
    for name, reason in skipped:
        print(f"skipped: {name} ({reason})", file=sys.stderr)
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    print(passed, len(failed), len(skipped))


if __name__ == "__main__":
    main()

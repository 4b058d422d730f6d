#!/usr/bin/env bash
# Draws the pictures of README.md from the report of its run: docs/pictures/report.png (all of the report) and
# docs/pictures/plan.png (whole sections: the plan, its critical path, its timeline). Usage:
#   scripts/report_pictures.sh REPORT.html      (scripts/readme_run.sh --update does the run, and calls this)
# Needs Debian's packages chromium and python3-pil.
set -euo pipefail
report=$(realpath "$1")
cd "$(dirname "$0")/.."
command -v chromium >/dev/null || { echo "$0: needs chromium" >&2; exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$report" "$work/report.html"
# Up to the section after the timeline.
sed '/<h2>What each device does/,$d' "$work/report.html" >"$work/plan.html"
echo "</body></html>" >>"$work/plan.html"
for page in report plan; do
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
    --window-size=1100,8000 --screenshot="$work/$page.png" "file://$work/$page.html" 2>/dev/null
  # The window is larger than the page: the empty rest goes.
  /usr/bin/python3 - "$work/$page.png" "docs/pictures/$page.png" <<'END'
import sys
from PIL import Image, ImageChops
picture = Image.open(sys.argv[1]).convert("RGB")
used = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
picture.crop((0, 0, picture.width, used[3] + 24)).save(sys.argv[2], optimize=True)
END
done
ls -l docs/pictures

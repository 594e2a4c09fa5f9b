# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built artifact, installed into an empty folder, runs the same site.yml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from site_runs import ROOT, playbook


def test_the_artifact_runs_site_yml(tmp_path: Path) -> None:
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    subprocess.run([galaxy, "collection", "build", "--output-path", str(tmp_path)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (artifact,) = tmp_path.glob("blackwell-inference-*.tar.gz")
    with tarfile.open(artifact) as archive:
        top = {name.split("/")[0] for name in archive.getnames()}
    assert not top & {"tests", "molecule", "inventory", "tools", ".ci", ".venv", "Makefile", "site.yml", "requirements.txt"}

    collections = tmp_path / "collections"
    # The checkout's own link in site-packages must not answer for the artifact.
    alone = {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false"}
    install = [galaxy, "collection", "install", str(artifact), "-p", str(collections), "--offline"]
    subprocess.run(install, env={**os.environ, **alone}, check=True, stdout=subprocess.DEVNULL)
    user = tmp_path / "user"
    shutil.copytree(ROOT / "inventory" / "lab", user / "inventory")
    (user / "site.yml").write_text("- import_playbook: blackwell.inference.site\n", encoding="utf-8")
    run = playbook("-i", "inventory", "site.yml", cwd=user, environment={**alone, "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"})
    assert run.status == 0, run.output
    # A new inventory folder has neither lock nor record yet; nothing on the hosts may change.
    assert {host for task, host in run.changed if not task.startswith(("Lock", "Record"))} == set(), run.changed
    assert (user / "inventory" / "records" / "kpro6" / "200" / "plan.yml.txt").is_file()

# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded H200, and what nvidia-smi says of the same card: its elements that are compared, written by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _gpu

RAW: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "gpu" / "h200.json").read_text())["raw"]
SMI = """\
<nvidia_smi_log>
  <driver_version>580.159.04</driver_version><cuda_version>13.0</cuda_version><attached_gpus>1</attached_gpus>
  <gpu id="00000000:00:06.0">
    <product_name>NVIDIA H200</product_name><uuid>GPU-00000000-1111-2222-3333-444444444444</uuid><minor_number>0</minor_number>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <pci>
      <pci_device_id>233510DE</pci_device_id>
      <pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info>
    </pci>
    <fb_memory_usage><total>143771 MiB</total><used>0 MiB</used></fb_memory_usage>
    <gpu_power_readings><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
  </gpu>
</nvidia_smi_log>
"""


def gpu_facts() -> dict[str, Any]:
    facts: dict[str, Any] = _gpu.assemble(copy.deepcopy(RAW))
    return facts

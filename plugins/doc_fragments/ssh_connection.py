# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # What ansible-core's ssh plugin (2.18 to 2.21) reads through get_option. A subclass must document each of them,
    # with the same sources, so that the node's own tasks and those in its containers share one socket.
    DOCUMENTATION = r"""
options:
  host:
    description: Address of the node, as for the node's own inventory host.
    type: str
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_ssh_host
      - name: delegated_vars['ansible_host']
      - name: delegated_vars['ansible_ssh_host']
  host_key_checking:
    description: Whether ssh refuses a node whose host key is not known.
    type: bool
    default: true
    env: [{name: ANSIBLE_HOST_KEY_CHECKING}, {name: ANSIBLE_SSH_HOST_KEY_CHECKING}]
    ini: [{key: host_key_checking, section: defaults}, {key: host_key_checking, section: ssh_connection}]
    vars: [{name: ansible_host_key_checking}, {name: ansible_ssh_host_key_checking}]
  password:
    description: Password of O(remote_user) on the node.
    type: str
    vars: [{name: ansible_password}, {name: ansible_ssh_pass}, {name: ansible_ssh_password}]
  password_mechanism:
    description: How a password is handed to ssh.
    type: str
    choices: [ssh_askpass, sshpass, disable]
    default: ssh_askpass
    env: [{name: ANSIBLE_SSH_PASSWORD_MECHANISM}]
    ini: [{key: password_mechanism, section: ssh_connection}]
    vars: [{name: ansible_ssh_password_mechanism}]
  sshpass_prompt:
    description: Prompt after which the password is sent.
    type: str
    default: ''
    env: [{name: ANSIBLE_SSHPASS_PROMPT}]
    ini: [{key: sshpass_prompt, section: ssh_connection}]
    vars: [{name: ansible_sshpass_prompt}]
  ssh_args:
    description: Arguments of every ssh program. The default holds one connection open and shares it.
    type: str
    default: -C -o ControlMaster=auto -o ControlPersist=60s
    env: [{name: ANSIBLE_SSH_ARGS}]
    ini: [{key: ssh_args, section: ssh_connection}]
    vars: [{name: ansible_ssh_args}]
  ssh_common_args:
    description: More arguments of every ssh program.
    type: str
    default: ''
    cli: [{name: ssh_common_args}]
    env: [{name: ANSIBLE_SSH_COMMON_ARGS}]
    ini: [{key: ssh_common_args, section: ssh_connection}]
    vars: [{name: ansible_ssh_common_args}]
  ssh_executable:
    description: The ssh program.
    type: str
    default: ssh
    env: [{name: ANSIBLE_SSH_EXECUTABLE}]
    ini: [{key: ssh_executable, section: ssh_connection}]
    vars: [{name: ansible_ssh_executable}]
  sftp_executable:
    description: Not used by this plugin, read by its parent.
    type: str
    default: sftp
    env: [{name: ANSIBLE_SFTP_EXECUTABLE}]
    ini: [{key: sftp_executable, section: ssh_connection}]
    vars: [{name: ansible_sftp_executable}]
  scp_executable:
    description: Not used by this plugin, read by its parent.
    type: str
    default: scp
    env: [{name: ANSIBLE_SCP_EXECUTABLE}]
    ini: [{key: scp_executable, section: ssh_connection}]
    vars: [{name: ansible_scp_executable}]
  scp_extra_args:
    description: Not used by this plugin, read by its parent.
    type: str
    default: ''
    cli: [{name: scp_extra_args}]
    env: [{name: ANSIBLE_SCP_EXTRA_ARGS}]
    ini: [{key: scp_extra_args, section: ssh_connection}]
    vars: [{name: ansible_scp_extra_args}]
  sftp_extra_args:
    description: Not used by this plugin, read by its parent.
    type: str
    default: ''
    cli: [{name: sftp_extra_args}]
    env: [{name: ANSIBLE_SFTP_EXTRA_ARGS}]
    ini: [{key: sftp_extra_args, section: ssh_connection}]
    vars: [{name: ansible_sftp_extra_args}]
  ssh_extra_args:
    description: More arguments of ssh alone.
    type: str
    default: ''
    cli: [{name: ssh_extra_args}]
    env: [{name: ANSIBLE_SSH_EXTRA_ARGS}]
    ini: [{key: ssh_extra_args, section: ssh_connection}]
    vars: [{name: ansible_ssh_extra_args}]
  reconnection_retries:
    description: How often a lost or refused connection to the node is tried again.
    type: int
    default: 0
    env: [{name: ANSIBLE_SSH_RETRIES}]
    ini: [{key: retries, section: connection}, {key: retries, section: ssh_connection}]
    vars: [{name: ansible_ssh_retries}]
  port:
    description: Port of the node's ssh server.
    type: int
    keyword: [{name: port}]
    env: [{name: ANSIBLE_REMOTE_PORT}]
    ini: [{key: remote_port, section: defaults}]
    vars: [{name: ansible_port}, {name: ansible_ssh_port}]
  remote_user:
    description: User on the node. It must be root, since only root can enter the node's containers.
    type: str
    cli: [{name: user}]
    keyword: [{name: remote_user}]
    env: [{name: ANSIBLE_REMOTE_USER}]
    ini: [{key: remote_user, section: defaults}]
    vars: [{name: ansible_user}, {name: ansible_ssh_user}]
  pipelining:
    description: Send a module through the standard input of its interpreter instead of copying it first.
    type: bool
    default: true
    env: [{name: ANSIBLE_PIPELINING}, {name: ANSIBLE_SSH_PIPELINING}]
    ini:
      - {key: pipelining, section: defaults}
      - {key: pipelining, section: connection}
      - {key: pipelining, section: ssh_connection}
    vars: [{name: ansible_pipelining}, {name: ansible_ssh_pipelining}]
  private_key_file:
    description: Private key for the node.
    type: str
    cli: [{name: private_key_file, option: --private-key}]
    env: [{name: ANSIBLE_PRIVATE_KEY_FILE}]
    ini: [{key: private_key_file, section: defaults}]
    vars: [{name: ansible_private_key_file}, {name: ansible_ssh_private_key_file}]
  private_key:
    description: Private key in PEM format, added to the ssh agent.
    type: str
    env: [{name: ANSIBLE_PRIVATE_KEY}]
    vars: [{name: ansible_private_key}, {name: ansible_ssh_private_key}]
  private_key_passphrase:
    description: Passphrase of O(private_key).
    type: str
    env: [{name: ANSIBLE_PRIVATE_KEY_PASSPHRASE}]
    vars: [{name: ansible_private_key_passphrase}, {name: ansible_ssh_private_key_passphrase}]
  control_path:
    description: Path of the shared connection's socket. Default is a hash of address, port and user.
    type: str
    env: [{name: ANSIBLE_SSH_CONTROL_PATH}]
    ini: [{key: control_path, section: ssh_connection}]
    vars: [{name: ansible_control_path}]
  control_path_dir:
    description: Folder of the sockets.
    type: str
    default: ~/.ansible/cp
    env: [{name: ANSIBLE_SSH_CONTROL_PATH_DIR}]
    ini: [{key: control_path_dir, section: ssh_connection}]
    vars: [{name: ansible_control_path_dir}]
  sftp_batch_mode:
    description: Not used by this plugin, read by its parent.
    type: bool
    default: true
    env: [{name: ANSIBLE_SFTP_BATCH_MODE}]
    ini: [{key: sftp_batch_mode, section: ssh_connection}]
    vars: [{name: ansible_sftp_batch_mode}]
  ssh_transfer_method:
    description: Not used by this plugin, read by its parent. Files go through a command's input and output.
    type: str
    choices: [sftp, scp, piped, smart]
    default: smart
    env: [{name: ANSIBLE_SSH_TRANSFER_METHOD}]
    ini: [{key: transfer_method, section: ssh_connection}]
    vars: [{name: ansible_ssh_transfer_method}]
  use_tty:
    description: Not used by this plugin, read by its parent. No command gets a terminal.
    type: bool
    default: true
    env: [{name: ANSIBLE_SSH_USETTY}]
    ini: [{key: usetty, section: ssh_connection}]
    vars: [{name: ansible_ssh_use_tty}]
  timeout:
    description: Seconds to wait for the connection to the node.
    type: int
    default: 10
    cli: [{name: timeout}]
    env: [{name: ANSIBLE_TIMEOUT}, {name: ANSIBLE_SSH_TIMEOUT}]
    ini: [{key: timeout, section: defaults}, {key: timeout, section: ssh_connection}]
    vars: [{name: ansible_ssh_timeout}]
  pkcs11_provider:
    description: PKCS11 library of a smart card.
    type: str
    default: ''
    env: [{name: ANSIBLE_PKCS11_PROVIDER}]
    ini: [{key: pkcs11_provider, section: ssh_connection}]
    vars: [{name: ansible_ssh_pkcs11_provider}]
  verbosity:
    description: Verbosity of ssh.
    type: int
    default: 0
    env: [{name: ANSIBLE_SSH_VERBOSITY}]
    ini: [{key: verbosity, section: ssh_connection}]
    vars: [{name: ansible_ssh_verbosity}]
"""

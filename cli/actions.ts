/** Words for the first argument of a command, by its name; the first is the default. */
export const ACTIONS = {
  devices: ['list', 'watch', 'rename', 'extend', 'reduce', 'revoke'],
  service: ['status', 'install', 'remove'],
  'secure-link': ['status', 'enable', 'disable', 'rotate'],
  mirror: ['status', 'enable', 'disable'],
  tenants: ['list', 'claim', 'show', 'set', 'release'],
  profiles: ['list', 'enable'],
  'operator-key': ['status', 'rotate'],
  'qr-key': ['status', 'rotate'],
  compat: ['status', 'install', 'remove'],
  'insecure-api-key': ['status', 'on', 'off', 'enable', 'disable'],
  trusted: ['list', 'add', 'remove'],
  blocklist: ['list', 'add', 'remove', 'reset'],
  triggers: ['list', 'add', 'remove', 'enable', 'disable', 'clear', 'on', 'off', 'kill', 'resume'],
  mcp: ['serve', 'pair', 'install', 'list', 'revoke'],
  completion: ['bash', 'zsh', 'fish'],
} as const;

import { existsSync } from 'node:fs';
import type { OwnPackage } from './own-package.ts';

/** The command that updates an installation of this package to a version; null if unknown. */
export function updateCommandOf({ directory }: OwnPackage, latest: string): string | null {
  if (directory === null) return null;
  if (directory.endsWith('/lib/node_modules/svc-relay')) return `npm install -g svc-relay@${latest}`;
  return existsSync(`${directory}/.git`) ? 'git pull && npm install' : null;
}

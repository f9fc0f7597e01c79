import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** The folder of a restore under way, below the agent home where nothing is ever served as media. */
export const restoreFolder = (agentHome: string): string => join(agentHome, 'svc-relay', 'restoring');

export const journalPath = (agentHome: string): string => join(restoreFolder(agentHome), 'journal.json');

/** True between the commit of a restore and its end. */
export const isUnfinished = (agentHome: string): boolean => existsSync(journalPath(agentHome));

import { createNodeHost, type NodeHostOptions } from '../../lib/host/node/index.ts';
import { createYamlThread } from '../../lib/host/node/yaml.ts';

/** One for all hosts of a test process: it takes a tenth of a second of processor time to start. */
export const sharedYaml = createYamlThread();

/** A host of this machine for tests. */
export const createTestHost = (options: NodeHostOptions) => createNodeHost({ yaml: sharedYaml, ...options });

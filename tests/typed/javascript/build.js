// Makes a component: node build.js SOURCE WIT OUT. Runs beside the `node_modules` that package.json asks for.

import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [sourcePath, witPath, out] = process.argv.slice(2);
const { component } = await componentize({ sourcePath, witPath, worldName: 'tools' });
await writeFile(out, component);

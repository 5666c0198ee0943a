// Opens model files with netron's own modules and prints what it finds in each, as JSON.
// node netron.mjs FOLDER_OF_NETRON FILE...
import fs from 'fs';
import path from 'path';
import { pathToFileURL } from 'url';

const folder = path.resolve(process.argv[2]);
const load = (id) => import(pathToFileURL(path.join(folder, id.endsWith('.js') ? id : `${id}.js`)));
const [view, base] = [await load('view'), await load('base')];
const bytes = (file) => new base.BinaryStream(fs.readFileSync(file));
const names = (list) => list.map((argument) => argument.name);

// What netron asks of the window that it usually lives in.
let errors = [];
const note = (error) => errors.push(String(error));
const asset = async (file) => fs.readFileSync(path.join(folder, file), 'utf-8');
const host = { environment: () => null, require: load, asset, exception: note, event: () => {}, get: () => null, set: () => {} };

const service = new view.ModelFactoryService(host);
await service.import();
const found = {};
for (const file of process.argv.slice(3)) {
    errors = [];
    const fetch = async (name) => bytes(path.join(path.dirname(file), name));
    try {
        const model = await service.open({ identifier: path.basename(file), stream: bytes(file), require: load, asset, error: note, fetch });
        const graph = model.modules[0];
        found[file] = { format: model.format, inputs: names(graph.inputs), outputs: names(graph.outputs),
            nodes: graph.nodes.map((node) => node.type.name), errors };
    } catch (error) {
        found[file] = { errors: [...errors, `${error.name}: ${error.message}`] };
    }
}
console.log(JSON.stringify(found));

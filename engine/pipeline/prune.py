"""Columns that a query doesn't select are not decoded: what Spark's Python data sources lack, put into a session.

Theory. Spark 4 tells a Python data source nothing of the columns that a query needs: the whole schema is read for a
`count()`. Its optimizer knows them, as a `Project` above the scan, and takes a user's rules (`extraOptimizations`). The
rule here, some lines of Java, looks for such a pair, and puts a scan of the same store with the option `columns` in its
place. Janino compiles it, which is in every Spark: Spark's own generated code needs it.

A read that names its `columns`, or has `pushFilters`, is left as it is. So is everything that the rule does not know:
whatever goes wrong in it, the plan stays, all columns are read, and a warning says so once: in Python's log where the
rule can't be put in, in Spark's (`rstore.StoreColumns`) where it fails. Each query that is narrowed so has a scan of
its own: it settles for itself where the log ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_CLASS = "rstore.StoreColumns"
_OFF = "column pruning is off, every column is decoded"
_CHEAPEST = "size"
"""What is read where no column is needed: it stands in the table that the scan makes anyway."""
_SOURCE = """
package rstore;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class StoreColumns extends org.apache.spark.sql.catalyst.rules.Rule {
    static final java.util.List NAMES = java.util.Arrays.asList("@NAMES@".split(","));
    static final String CHEAPEST = "@CHEAPEST@";

    public TreeNode apply(TreeNode plan) {
        return plan.transformDown(new Narrow());
    }

    public static class Narrow extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof Project;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            try {
                if (node instanceof Project) {
                    Object found = narrowed((Project) node);
                    if (found != null) {
                        return found;
                    }
                }
            } catch (Throwable why) {
                tellOnce(why);
            }
            return otherwise.apply(node);
        }
    }

    public static class Replace extends scala.runtime.AbstractPartialFunction {
        final Object old;
        final Object by;

        public Replace(Object old, Object by) {
            this.old = old;
            this.by = by;
        }

        public boolean isDefinedAt(Object node) {
            return node == old;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return node == old ? by : otherwise.apply(node);
        }
    }

    static boolean told = false;

    static synchronized void tellOnce(Throwable why) {
        if (!told) {
            told = true;
            org.slf4j.LoggerFactory.getLogger(StoreColumns.class).warn("@OFF@", why);
        }
    }

    static Object narrowed(Project project) throws Exception {
        org.apache.spark.sql.catalyst.expressions.AttributeSet needed = project.references();
        LogicalPlan below = (LogicalPlan) project.child();
        while (below instanceof Filter) {
            needed = needed.$plus$plus(((Filter) below).condition().references());
            below = (LogicalPlan) ((Filter) below).child();
        }
        if (!(below instanceof DataSourceV2ScanRelation)) {
            return null;
        }
        DataSourceV2ScanRelation scanned = (DataSourceV2ScanRelation) below;
        DataSourceV2Relation relation = scanned.relation();
        CaseInsensitiveStringMap options = relation.options();
        if (!NAMES.contains(relation.table().name())
                || options.containsKey("columns")
                || "true".equalsIgnoreCase(options.get("pushFilters"))) {
            return null;
        }
        scala.collection.mutable.ListBuffer kept = new scala.collection.mutable.ListBuffer();
        StringBuilder names = new StringBuilder();
        scala.collection.Iterator all = scanned.output().iterator();
        Object cheapest = null;
        int count = 0;
        while (all.hasNext()) {
            AttributeReference column = (AttributeReference) all.next();
            count++;
            if (column.name().equals(CHEAPEST)) {
                cheapest = column;
            }
            if (needed.contains(column)) {
                kept.addOne(column);
                names.append(names.length() == 0 ? "" : ",").append(column.name());
            }
        }
        if (kept.size() == 0 && cheapest != null) {
            kept.addOne(cheapest);
            names.append(CHEAPEST);
        }
        if (kept.size() == 0 || kept.size() == count) {
            return null;
        }
        Map changed = new HashMap(options.asCaseSensitiveMap());
        changed.put("columns", names.toString());
        CaseInsensitiveStringMap narrow = new CaseInsensitiveStringMap(changed);
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(relation.table().name());
        StructType schema = source.inferSchema(narrow);
        if (!String.join(",", schema.fieldNames()).equals(names.toString())) {
            return null;
        }
        Table table = source.getTable(schema, new Transform[0], changed);
        Scan scan = ((SupportsRead) table).newScanBuilder(narrow).build();
        Object other = copy(relation, new Object[] {table, narrow});
        return ((TreeNode) project).transformDown(
            new Replace(scanned, copy(scanned, new Object[] {other, scan, kept.toList()})));
    }

    // A case class's copy: each of `values` takes the place of the first parameter of its type that is left.
    static Object copy(Object node, Object[] values) throws Exception {
        Method[] methods = node.getClass().getMethods();
        for (int m = 0; m < methods.length; m++) {
            if (!methods[m].getName().equals("copy") || methods[m].getParameterTypes().length == 0) {
                continue;
            }
            Class[] kinds = methods[m].getParameterTypes();
            Object[] arguments = new Object[kinds.length];
            boolean[] used = new boolean[values.length];
            for (int i = 0; i < kinds.length; i++) {
                arguments[i] = node.getClass().getMethod("copy$default$" + (i + 1), new Class[0])
                    .invoke(node, new Object[0]);
                for (int v = 0; v < values.length; v++) {
                    if (!used[v] && kinds[i].isInstance(values[v])) {
                        arguments[i] = values[v];
                        used[v] = true;
                        break;
                    }
                }
            }
            return methods[m].invoke(node, arguments);
        }
        throw new IllegalStateException("no copy");
    }
}
"""


def install(spark: SparkSession, names: Sequence[str]) -> bool:
    """Put the rule into a session, once; another Spark's session stays as it is, with a warning. Whether it is there.

    Args:
        spark: the session.
        names: of the data source.
    """
    try:
        jvm: Any = spark._jvm
        experimental = spark._jsparkSession.experimental()
        rules = experimental.extraOptimizations()
        for i in range(rules.size()):
            if rules.apply(i).getClass().getName() == _CLASS:
                return True
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(
            _SOURCE.replace("@NAMES@", ",".join(names)).replace("@CHEAPEST@", _CHEAPEST).replace("@OFF@", _OFF)
        )
        rule = compiler.getClassLoader().loadClass(_CLASS).newInstance()
        getattr(experimental, "extraOptimizations_$eq")(rules.appended(rule))
    except Exception as error:  # noqa: BLE001 - a Spark that is otherwise fails in ways nobody knows
        logging.getLogger(__name__).warning("%s: %s", _OFF, " ".join(str(error).split()))
        return False
    return True
